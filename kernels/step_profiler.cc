// Which stamps there are, and what lies between them.
#include "kernels/step_profiler.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"

namespace quire {

const char* Name(StepPart part) {
  switch (part) {
    case StepPart::kIdle: return "idle";
    case StepPart::kProducts: return "products";
    case StepPart::kAttention: return "attention";
    case StepPart::kNorms: return "norms";
    case StepPart::kElementwise: return "elementwise";
    case StepPart::kSampling: return "sampling";
    case StepPart::kCollectives: return "collectives";
    case StepPart::kCopies: return "copies";
  }
  return "unknown";
}

bool StepProfiler::BeginStep() {
  CHECK(!measuring_);
  if (awaits_take_.load(std::memory_order_acquire)) return false;
  parts_.clear();
  parts_.reserve(kMaxParts);
  part_ = StepPart::kIdle;
  measuring_ = true;
  return true;
}

void StepProfiler::Change(StepPart part) {
  if (parts_.size() == kMaxParts) return;
  Stamp(static_cast<int>(parts_.size()));
  parts_.push_back(part);
  part_ = part;
}

void StepProfiler::EndStep() {
  if (measuring_) Stamp(static_cast<int>(parts_.size()));
  StampEnd(/*keep_last=*/measuring_);
  if (!measuring_) return;
  measuring_ = false;
  awaits_take_.store(true, std::memory_order_release);
}

void StepProfiler::Take(std::vector<PartTime>& parts) {
  CHECK(awaits_take_.load(std::memory_order_acquire));
  const auto between = [this](int from, int to) {
    return static_cast<uint32_t>(
        std::clamp<int64_t>(NsBetween(from, to), 0, std::numeric_limits<uint32_t>::max()));
  };
  parts.clear();
  parts.push_back({StepPart::kIdle, between(-1, 0)});
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto at = static_cast<int>(i);
    parts.push_back({parts_[i], between(at, at + 1)});
  }
  awaits_take_.store(false, std::memory_order_release);
}

}  // namespace quire
