// SharedMemoryTransport: the server's side of one worker group whose ranks are other processes,
// behind StepMemory. Checks every result against its plan before it returns it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/worker/copy/copy_dispatch.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/transport.h"

namespace quire {

class SharedMemoryTransport final : public Transport {
 public:
  // The supervisor shares `memory`, to watch the ranks' heartbeats. `bell` becomes the word of the
  // WakeEvent, which the ranks notify. Sampled tokens lie in [0, vocab_size). `masks` is the
  // memory's board, or empty where a rank cannot read it.
  SharedMemoryTransport(std::shared_ptr<StepMemory> memory,
                        std::shared_ptr<std::atomic<uint32_t>> bell, int32_t vocab_size,
                        const MaskBoard& masks);
  // Sends the shutdown plan and the last copy jobs; does not wait.
  ~SharedMemoryTransport() override;

  void SetWake(WakeEvent* wake) override { wake->Share(bell_); }
  StepPlan* NextSlot() override;
  void Publish() override;
  const StepResult* Poll() override;
  const StepResult* ResultOf(int32_t rank) override {
    const auto index = static_cast<size_t>(rank);
    return joined_ && index < results_.size() ? &results_[index] : nullptr;
  }
  void Release() override;
  int in_flight() const override {
    return forgotten_ ? 0 : static_cast<int>(published_ - released_);
  }
  bool Submit(const CopyJob& job) override {
    return !forgotten_ && fault_.empty() && copies_.Submit(job);
  }
  bool PollCopy(CopyAck& ack) override { return !forgotten_ && copies_.Poll(ack); }
  int32_t ready_pages() const override { return copies_.ready_pages(); }
  std::string fault() const override { return fault_.empty() ? copies_.fault() : fault_; }
  uint64_t rank_mismatches() const override { return rank_mismatches_; }
  const MaskBoard* masks() const override { return masks_.empty() ? nullptr : &masks_; }
  // Always false: this transport has one group.
  bool Recover() override {
    forgotten_ = true;
    return false;
  }
  bool recovering() override { return false; }

 private:
  // The step and rows that the result of a plan must have.
  struct Expected {
    uint64_t step = 0;
    std::vector<int32_t> rows;  // that sample, in plan order
    std::vector<RowMask> late;  // of these rows and in their order, the masks that come late
    size_t reading_words = 0;
  };

  void Send(const StepPlan& plan);
  bool Read(int32_t rank, StepResult& result);
  // The fault of a result; empty: none.
  std::string FaultOf(const StepResult& result, const Expected& expected) const;

  const std::shared_ptr<StepMemory> memory_;
  const std::shared_ptr<std::atomic<uint32_t>> bell_;
  const int32_t vocab_size_;
  CopyDispatch copies_;
  SharedRing plans_;
  const MaskBoard masks_;
  StepPlan plan_;                    // being built
  std::vector<Expected> expected_;   // [depth], a ring
  std::vector<StepResult> results_;  // [ranks], of the oldest step in flight once it is `joined_`
  bool joined_ = false;
  bool forgotten_ = false;
  uint64_t published_ = 0;
  uint64_t released_ = 0;
  std::string fault_;
  uint64_t rank_mismatches_ = 0;
};

}  // namespace quire
