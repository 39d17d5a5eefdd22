// VirtualWorkers: a worker group of a simulated world, as the engine sees it. Steps and copies are
// executed by shadows (engine/worker/fake) and take virtual time; the group may die, stall, return,
// and die for good.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/values/scheduler_config.h"
#include "engine/worker/fake/shadow_copier.h"
#include "engine/worker/fake/shadow_worker.h"
#include "engine/worker/transport.h"
#include "tests/simulation/agenda.h"

namespace quire {

struct WorkerManners {
  int depth = 2;                // steps in flight
  int64_t step_ns = 1'000'000;  // and up to as much again
  int64_t token_ns = 10'000;
  int64_t copy_ns = 1'000'000;  // of a job, and up to as much again
  int stall_one_in = 0;         // steps and copies that take stall_ns; 0: none
  int64_t stall_ns = 500'000'000;
  int64_t restart_ns = 300'000'000;
  int64_t pages_ns = 1'000'000;  // between two pages that become ready
  ShadowFaults faults;
};

class VirtualWorkers final : public Transport {
 public:
  struct Counts {
    int64_t steps = 0, retired_tokens = 0, copies = 0, deaths = 0, lost_steps = 0, lost_copies = 0;
  };

  // Outlive it.
  struct Surroundings {
    Agenda& agenda;
    Dice& dice;
    Counts& counts;
  };

  VirtualWorkers(const Surroundings& world, const SchedulerConfig& config, const ShadowModel& model,
                 const WorkerManners& manners);
  // Actions that are left on the agenda find out that it is gone.
  ~VirtualWorkers() override { *generation_ = kGone; }

  // The workers die with all that they have. `for_good`: no others follow.
  void Die(bool for_good);

  void SetWake(WakeEvent* wake) override { wake_ = wake; }
  StepPlan* NextSlot() override;
  void Publish() override;
  const StepResult* Poll() override;
  const StepResult* ResultOf(int32_t rank) override { return rank == 0 ? Poll() : nullptr; }
  void Release() override;
  int in_flight() const override { return static_cast<int>(flights_.size()); }
  bool Submit(const CopyJob& job) override;
  bool PollCopy(CopyAck& ack) override;
  int32_t ready_pages() const override { return ready_pages_; }
  std::string fault() const override { return fault_; }
  const MaskBoard* masks() const override { return recovering_ ? nullptr : &board_; }
  bool Recover() override;
  bool recovering() override { return recovering_; }

 private:
  static constexpr uint64_t kNone = 0, kGone = ~uint64_t{0};  // generations

  struct Flight {
    StepPlan plan;
    StepResult result;
    bool done = false;
  };

  int64_t Duration(int64_t ns);
  void Begin();
  // Runs the action at the time, unless this group has ended by then.
  void Later(int64_t time_ns, Agenda::Action action);
  void RunStep(Flight& flight, int64_t began_ns);
  void NextPage();

  Agenda& agenda_;
  Dice& dice_;
  Counts& counts_;
  const SchedulerConfig config_;
  const ShadowModel model_;
  const WorkerManners manners_;
  std::vector<std::byte> board_memory_;
  const MaskBoard board_;
  WakeEvent* wake_ = nullptr;
  std::unique_ptr<ShadowWorker> worker_;
  ShadowCopier copier_;
  // Of the group that lives. Shared with the actions on the agenda.
  const std::shared_ptr<uint64_t> generation_ = std::make_shared<uint64_t>(kNone);
  uint64_t next_generation_ = 1;
  StepPlan next_;
  std::deque<std::unique_ptr<Flight>> flights_;
  int64_t last_end_ns_ = 0;
  std::array<int64_t, 2> last_copy_ns_{};  // by direction
  std::deque<CopyAck> acks_;
  int32_t ready_pages_ = 0;
  std::string fault_;
  bool for_good_ = false;
  bool recovering_ = false;
};

}  // namespace quire
