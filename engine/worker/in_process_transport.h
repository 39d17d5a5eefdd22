// InProcessTransport: the worker group as threads of this process: one thread per rank, which
// executes every plan on its own StepRunner, and the threads of the ranks' copies. Used by the CPU
// device, by tests and for debugging.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/worker/copy/copy_dispatch.h"
#include "engine/worker/copy/copy_engine.h"
#include "engine/worker/rank/step_runner.h"
#include "engine/worker/transport.h"

namespace quire {

class InProcessTransport final : public Transport {
 public:
  // Starts one thread per runner, and the threads of its copies; either all runners copy or none
  // does. `depth` is the number of steps in flight; `board` is empty if no mask may come late.
  InProcessTransport(std::vector<std::unique_ptr<StepRunner>> runners, int depth,
                     const MaskBoard::Shape& board = {});
  // Sends the shutdown plan if none was sent, and joins. Every published step, and every copy, must
  // finish first.
  ~InProcessTransport() override;

  void SetWake(WakeEvent* wake) override { wake_.store(wake, std::memory_order_release); }
  StepPlan* NextSlot() override;
  void Publish() override;
  const StepResult* Poll() override;
  const StepResult* ResultOf(int32_t rank) override;
  void Release() override;
  int in_flight() const override {
    return forgotten_ ? 0 : static_cast<int>(published_count_ - released_);
  }
  bool Submit(const CopyJob& job) override { return !forgotten_ && copies_->Submit(job); }
  bool PollCopy(CopyAck& ack) override { return !forgotten_ && copies_->Poll(ack); }
  int32_t ready_pages() const override { return copies_->ready_pages(); }
  std::string fault() const override { return fault_.empty() ? copies_->fault() : fault_; }
  uint64_t rank_mismatches() const override { return rank_mismatches_; }
  const MaskBoard* masks() const override { return masks_.empty() ? nullptr : &masks_; }
  // Always false: a rank thread that dies ends the process, and ranks that disagree stay faulty.
  bool Recover() override;
  bool recovering() override { return false; }

 private:
  // Private to this process, in the form of shared memory.
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Rank {
    std::unique_ptr<StepRunner> runner;
    std::vector<StepResult> results;    // [depth]
    std::atomic<uint32_t> finished{0};  // steps this rank has finished, modulo 2^32
    std::thread thread;
    std::vector<Line> ring_memory;
    std::unique_ptr<CopyEngine> copies;  // null: the rank does not copy
  };

  void StartCopies();
  void EndCopies();
  void RunRank(Rank& rank);
  void Notify();
  StepPlan& plan(uint32_t index) { return plans_[index % plans_.size()]; }

  std::vector<Line> board_memory_;
  const MaskBoard masks_;
  std::vector<StepPlan> plans_;  // [depth], written by the scheduler before `published_`
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<uint32_t> published_{0};  // ranks wait on it
  std::atomic<WakeEvent*> wake_{nullptr};
  std::unique_ptr<CopyDispatch> copies_;
  // Scheduler thread only.
  uint32_t published_count_ = 0;
  uint32_t released_ = 0;
  bool shutdown_sent_ = false;
  bool forgotten_ = false;  // steps in flight go on; their results are dropped
  std::string fault_;
  uint64_t rank_mismatches_ = 0;
};

}  // namespace quire
