// A ring of step records.
#include "engine/schedule/steps_in_flight.h"

#include "kernels/check.h"

namespace quire {

StepsInFlight::StepsInFlight(int32_t max_num_seqs) {
  for (StepRecord& record : ring_) record.work.reserve(max_num_seqs);
}

StepRecord& StepsInFlight::Next() {
  CHECK_LT(size_, kMaxSteps);
  StepRecord& record = ring_[(first_ + size_) % kMaxSteps];
  record.work.clear();
  record.readings.clear();
  record.shape = {};
  return record;
}

void StepsInFlight::PopOldest() {
  CHECK_GT(size_, 0);
  first_ = (first_ + 1) % kMaxSteps;
  --size_;
}

void StepsInFlight::Clear() { first_ = size_ = 0; }

}  // namespace quire
