// Comparison of the ranks' counts.
#include "engine/worker/process/group_progress.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

std::string Count(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

constexpr const char* kNouns[] = {"step", "load", "store"};

}  // namespace

GroupProgress::GroupProgress(std::shared_ptr<const StepMemory> memory)
    : memory_(std::move(memory)), ranks_(static_cast<size_t>(memory_->shape().ranks)) {}

uint64_t GroupProgress::Asked(Kind kind, int32_t rank) const {
  if (kind == kSteps) return memory_->plans().published();
  const CopyDirection direction = kind == kLoads ? CopyDirection::kLoad : CopyDirection::kStore;
  return memory_->copies(rank).jobs(direction).published();
}

uint64_t GroupProgress::Finished(Kind kind, int32_t rank) const {
  if (kind == kSteps) return memory_->heartbeat(rank).finished.load(std::memory_order_relaxed);
  const CopyDirection direction = kind == kLoads ? CopyDirection::kLoad : CopyDirection::kStore;
  return memory_->copies(rank).acks(direction).published();
}

std::optional<GroupProgress::Stall> GroupProgress::Check(int64_t now_ns, double timeout_seconds) {
  std::optional<std::pair<Kind, int64_t>> stall;
  for (const Kind kind : {kSteps, kLoads, kStores}) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto rank = static_cast<int32_t>(i);
      Progress& progress = ranks_[i].progress[kind];
      const uint64_t asked = Asked(kind, rank), finished = Finished(kind, rank);
      if (finished != progress.finished || finished >= asked || progress.waiting_since_ns == 0) {
        progress = {.finished = finished, .waiting_since_ns = now_ns};
      }
      const int64_t waited_ns = now_ns - progress.waiting_since_ns;
      if (!stall && waited_ns > Nanoseconds(timeout_seconds)) stall.emplace(kind, waited_ns);
    }
  }
  if (!stall) return std::nullopt;
  return Describe(stall->first, stall->second);
}

GroupProgress::Stall GroupProgress::Describe(Kind kind, int64_t waited_ns) const {
  // The first figure that differs tells which rank the others wait for. A copy waits for no other
  // rank, hence it comes first; it may wait for a step of its own rank, hence the others follow.
  using Figures = std::array<uint64_t, 4>;
  std::vector<Figures> figures;
  Stall stall;
  for (int32_t rank = 0; rank < memory_->shape().ranks; ++rank) {
    const Heartbeat& heart = memory_->heartbeat(rank);
    const auto [copies, launched, collectives, finished] = figures.emplace_back(
        Figures{kind == kSteps ? 0 : Finished(kind, rank), heart.launched.load(),
                heart.collectives.load(), Finished(kSteps, rank)});
    const std::string first =
        kind == kSteps ? "" : "finished " + Count(copies, kNouns[kind]) + ", ";
    stall.counts.push_back(first + "launched " + Count(launched, "step") + ", begun " +
                           Count(collectives, "collective") + ", finished " +
                           Count(finished, "step"));
  }
  const Figures least = *std::ranges::min_element(figures);
  for (size_t i = 0; i < figures.size(); ++i) {
    if (figures[i] == least) stall.behind.push_back(static_cast<int32_t>(i));
  }
  const int32_t rank = stall.behind.front();
  const std::string noun = kNouns[kind];
  stall.work = "no " + noun + " for " + std::to_string(waited_ns / 1'000'000) + " ms (" + noun +
               " " + std::to_string(Finished(kind, rank) + 1) + " of " +
               std::to_string(Asked(kind, rank)) + ")";
  return stall;
}

StartProgress::StartProgress(int32_t ranks, int64_t now_ns)
    : begin_ns_(now_ns), ahead_since_ns_(static_cast<size_t>(ranks)) {}

void StartProgress::Begin(int64_t now_ns) { begin_ns_ = now_ns; }

std::optional<StartProgress::Lag> StartProgress::Check(std::span<const Stage> stages,
                                                       int64_t now_ns, double timeout_seconds) {
  CHECK_EQ(stages.size(), ahead_since_ns_.size());
  const Stage slowest = *std::ranges::min_element(stages);
  if (slowest != slowest_) {
    // Collectives are too short to measure the allowance by.
    if (slowest.messages != slowest_.messages) begin_ns_ = now_ns;
    slowest_ = slowest;
    std::ranges::fill(ahead_since_ns_, 0);
  }
  int64_t last_ahead_ns = begin_ns_;
  std::vector<int32_t> behind;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == slowest) {
      behind.push_back(static_cast<int32_t>(i));
      continue;
    }
    if (ahead_since_ns_[i] == 0) ahead_since_ns_[i] = now_ns;
    last_ahead_ns = std::max(last_ahead_ns, ahead_since_ns_[i]);
  }
  const int64_t others_ns = last_ahead_ns - begin_ns_;
  const bool late = now_ns - last_ahead_ns > others_ns + Nanoseconds(timeout_seconds);
  if (!late || behind.size() == stages.size()) return std::nullopt;
  return Lag{.ranks = std::move(behind), .waited_ns = now_ns - begin_ns_, .others_ns = others_ns};
}

}  // namespace quire
