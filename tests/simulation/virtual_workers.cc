// Results and acks become visible at their time on the agenda, which then wakes the engine.
#include "tests/simulation/virtual_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace quire {
namespace {

MaskBoard::Shape BoardShape(const SchedulerConfig& config, int depth) {
  return {.depth = depth,
          .masks = config.max_num_seqs,
          .words = static_cast<int32_t>(MaskWords(config.vocab_size))};
}

}  // namespace

VirtualWorkers::VirtualWorkers(const Surroundings& world, const SchedulerConfig& config,
                               const ShadowModel& model, const WorkerManners& manners)
    : agenda_(world.agenda),
      dice_(world.dice),
      counts_(world.counts),
      config_(config),
      model_(model),
      manners_(manners),
      board_memory_(static_cast<size_t>(MaskBoard::Bytes(BoardShape(config, manners.depth)))),
      board_(board_memory_.data(), BoardShape(config, manners.depth)),
      copier_(config.num_pages, config.block_size, manners.faults) {
  Begin();
}

void VirtualWorkers::Begin() {
  worker_ = std::make_unique<ShadowWorker>(
      ShadowWorkerOptions{.num_blocks = config_.num_blocks,
                          .block_size = config_.block_size,
                          .max_num_seqs = config_.max_num_seqs,
                          .max_model_len = config_.max_model_len,
                          .max_num_batched_tokens = config_.max_num_batched_tokens,
                          .model = model_,
                          .abort_on_violation = false});
  worker_->AttachMasks(board_);
  *generation_ = next_generation_++;
  recovering_ = false;
  ready_pages_ = 0;
  last_copy_ns_ = {};
  if (config_.num_pages > 0) Later(agenda_.now_ns() + manners_.pages_ns, [this] { NextPage(); });
}

void VirtualWorkers::NextPage() {
  ready_pages_ = std::min(config_.num_pages, ready_pages_ + static_cast<int>(dice_.Between(1, 8)));
  wake_->Notify();
  if (ready_pages_ == config_.num_pages) return;
  Later(agenda_.now_ns() + manners_.pages_ns, [this] { NextPage(); });
}

void VirtualWorkers::Later(int64_t time_ns, Agenda::Action action) {
  agenda_.At(time_ns, [living = generation_, mine = *generation_, action = std::move(action)] {
    if (*living == mine) action();
  });
}

int64_t VirtualWorkers::Duration(int64_t ns) {
  if (manners_.stall_one_in > 0 && dice_.OneIn(manners_.stall_one_in)) return manners_.stall_ns;
  return ns + dice_.Between(0, ns);
}

void VirtualWorkers::Die(bool for_good) {
  if (recovering_ || !fault_.empty()) return;
  ++counts_.deaths;
  *generation_ = kNone;
  for_good_ = for_good;
  fault_ = "the simulated workers died";
  wake_->Notify();
}

StepPlan* VirtualWorkers::NextSlot() {
  return recovering_ || !fault_.empty() || in_flight() >= manners_.depth ? nullptr : &next_;
}

void VirtualWorkers::Publish() {
  auto flight = std::make_unique<Flight>();
  flight->plan = next_;
  const int64_t began_ns = std::max(agenda_.now_ns(), last_end_ns_);
  last_end_ns_ = began_ns + Duration(manners_.step_ns + manners_.token_ns * next_.num_tokens);
  Flight* const flying = flight.get();
  flights_.push_back(std::move(flight));
  Later(last_end_ns_, [this, flying, began_ns] { RunStep(*flying, began_ns); });
}

void VirtualWorkers::RunStep(Flight& flight, int64_t began_ns) {
  worker_->Run(flight.plan, flight.result);
  EXPECT_EQ(worker_->violation(), "");
  flight.result.started_ns = flight.result.enqueued_ns = began_ns;
  flight.result.finished_ns = agenda_.now_ns();
  flight.done = true;
  ++counts_.steps;
  wake_->Notify();
}

const StepResult* VirtualWorkers::Poll() {
  return !flights_.empty() && flights_.front()->done ? &flights_.front()->result : nullptr;
}

void VirtualWorkers::Release() {
  counts_.retired_tokens += flights_.front()->plan.num_tokens;
  flights_.pop_front();
}

bool VirtualWorkers::Submit(const CopyJob& job) {
  if (recovering_ || !fault_.empty() || config_.num_pages == 0) return false;
  copier_.Submit(job, *worker_);
  int64_t& last_ns = last_copy_ns_[static_cast<size_t>(job.direction)];
  last_ns = std::max(agenda_.now_ns(), last_ns) + Duration(manners_.copy_ns);
  Later(last_ns, [this, direction = job.direction] {
    acks_.push_back(copier_.Finish(direction, *worker_));
    EXPECT_EQ(copier_.violation(), "");
    ++counts_.copies;
    wake_->Notify();
  });
  return true;
}

bool VirtualWorkers::PollCopy(CopyAck& ack) {
  if (acks_.empty()) return false;
  ack = acks_.front();
  acks_.pop_front();
  return true;
}

bool VirtualWorkers::Recover() {
  counts_.lost_steps += in_flight();
  counts_.lost_copies +=
      copier_.in_flight(CopyDirection::kLoad) + copier_.in_flight(CopyDirection::kStore);
  flights_.clear();
  acks_.clear();
  copier_.Die();
  ready_pages_ = 0;
  if (for_good_) return false;
  fault_.clear();
  recovering_ = true;
  agenda_.In(manners_.restart_ns, [this, living = generation_] {
    if (*living == kGone) return;
    Begin();
    wake_->Notify();
  });
  return true;
}

}  // namespace quire
