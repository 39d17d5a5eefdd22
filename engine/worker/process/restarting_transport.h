// RestartingTransport: one Transport over a sequence of worker groups, one at a time.
#pragma once

#include <memory>
#include <string>

#include "engine/worker/transport.h"

namespace quire {

// The source of worker groups, one at a time. Any thread.
class WorkerGroups {
 public:
  virtual ~WorkerGroups() = default;
  // Notified whenever the answers below change; see Transport::SetWake.
  virtual void SetWake(WakeEvent* wake) = 0;
  // The transport to the running group; null while no group runs, or if it was taken before.
  virtual std::unique_ptr<Transport> Take() = 0;
  // Why the group taken last is dead; empty while it lives.
  virtual std::string Fault() = 0;
  // Why no further group will come; empty while one may.
  virtual std::string End() = 0;
  // Kills the group taken last, because its results are wrong. It is dead on return, so that no
  // worker writes to host memory afterwards.
  virtual void Condemn(const std::string& why) = 0;
};

class RestartingTransport final : public Transport {
 public:
  // Requires that the first group is ready.
  explicit RestartingTransport(std::unique_ptr<WorkerGroups> groups);
  // Sends the group its last plan, then ends it.
  ~RestartingTransport() override;

  void SetWake(WakeEvent* wake) override { groups_->SetWake(wake); }
  StepPlan* NextSlot() override { return current_ == nullptr ? nullptr : current_->NextSlot(); }
  void Publish() override { current_->Publish(); }
  const StepResult* Poll() override { return current_ == nullptr ? nullptr : current_->Poll(); }
  const StepResult* ResultOf(int32_t rank) override { return current_->ResultOf(rank); }
  void Release() override { current_->Release(); }
  int in_flight() const override { return current_ == nullptr ? 0 : current_->in_flight(); }
  bool Submit(const CopyJob& job) override { return current_ != nullptr && current_->Submit(job); }
  bool PollCopy(CopyAck& ack) override { return current_ != nullptr && current_->PollCopy(ack); }
  int32_t ready_pages() const override { return current_ == nullptr ? 0 : current_->ready_pages(); }
  std::string fault() const override;
  uint64_t rank_mismatches() const override {
    return past_mismatches_ + (current_ == nullptr ? 0 : current_->rank_mismatches());
  }
  const MaskBoard* masks() const override {
    return current_ == nullptr ? nullptr : current_->masks();
  }
  bool Recover() override;
  bool recovering() override;

 private:
  const std::unique_ptr<WorkerGroups> groups_;
  std::unique_ptr<Transport> current_;  // null from Recover until the next group is ready
  uint64_t past_mismatches_ = 0;        // of the groups before
};

}  // namespace quire
