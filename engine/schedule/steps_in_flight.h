// StepsInFlight: the sequences of each step that is published and not yet retired, oldest first, to
// match its result with them. Reuses its records; allocates nothing once they have grown. One
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/schedule/sequence.h"
#include "engine/values/step_cost.h"
#include "kernels/check.h"

namespace quire {

struct StepRecord {
  struct Work {
    Sequence* sequence = nullptr;  // its record is not reused before this step has retired
    int32_t count = 0;
    int32_t draws = 0;
    bool late = false;  // its draw's mask comes while the step runs
  };
  uint64_t step = 0;
  StepShape shape;
  std::vector<Work> work;             // in plan order
  std::vector<StepReading> readings;  // of the plan

  size_t reading_words() const {
    return readings.empty() ? 0 : size_t{readings.back().begin} + readings.back().words;
  }
};

class StepsInFlight {
 public:
  // More than any transport's depth.
  static constexpr int32_t kMaxSteps = 8;

  explicit StepsInFlight(int32_t max_num_seqs) {
    for (StepRecord& record : ring_) record.work.reserve(max_num_seqs);
  }

  int32_t size() const { return size_; }
  const StepRecord& operator[](int32_t i) const { return ring_[(first_ + i) % kMaxSteps]; }
  const StepRecord& oldest() const { return ring_[first_]; }
  // The empty record of the next step; Push puts it in flight. Requires size() < kMaxSteps.
  StepRecord& Next() {
    CHECK_LT(size_, kMaxSteps);
    StepRecord& record = ring_[(first_ + size_) % kMaxSteps];
    record.work.clear();
    record.readings.clear();
    record.shape = {};
    return record;
  }
  void Push() { ++size_; }
  void PopOldest() {
    CHECK_GT(size_, 0);
    first_ = (first_ + 1) % kMaxSteps;
    --size_;
  }
  void Clear() { first_ = size_ = 0; }

 private:
  std::array<StepRecord, kMaxSteps> ring_;
  int32_t first_ = 0;
  int32_t size_ = 0;
};

}  // namespace quire
