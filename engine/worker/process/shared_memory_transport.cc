// Encoding plans, joining and checking results.
#include "engine/worker/process/shared_memory_transport.h"

#include <algorithm>
#include <utility>

#include "engine/worker/rank_mismatch.h"
#include "kernels/check.h"

namespace quire {
namespace {

CopyDispatch CopiesOf(const StepMemory& memory) {
  std::vector<CopyRings> ranks;
  for (int32_t rank = 0; rank < memory.shape().ranks && memory.shape().num_pages > 0; ++rank) {
    ranks.push_back(memory.copies(rank));
  }
  return {ranks, memory.shape().block_bytes};
}

}  // namespace

SharedMemoryTransport::SharedMemoryTransport(std::shared_ptr<StepMemory> memory,
                                             std::shared_ptr<std::atomic<uint32_t>> bell,
                                             int32_t vocab_size, const MaskBoard& masks)
    : memory_(std::move(memory)),
      bell_(std::move(bell)),
      vocab_size_(vocab_size),
      copies_(CopiesOf(*memory_)),
      plans_(memory_->plans()),
      masks_(masks),
      expected_(static_cast<size_t>(memory_->shape().depth)),
      results_(static_cast<size_t>(memory_->shape().ranks)) {}

SharedMemoryTransport::~SharedMemoryTransport() {
  copies_.End();
  plan_.Clear();
  plan_.shutdown = true;
  Send(plan_);
}

StepPlan* SharedMemoryTransport::NextSlot() {
  return in_flight() == memory_->shape().depth ? nullptr : &plan_;
}

void SharedMemoryTransport::Publish() {
  CHECK(!plan_.shutdown);
  CHECK_LT(in_flight(), memory_->shape().depth);
  Expected& expected = expected_[published_ % expected_.size()];
  expected.step = plan_.step;
  expected.rows.clear();
  expected.reading_words = plan_.reading_words();
  for (const RowWork& work : plan_.work) {
    expected.rows.insert(expected.rows.end(), work.sample, work.row);
  }
  expected.late.clear();
  for (const RowMask& mask : plan_.masks) {
    if (mask.is_late != 0) expected.late.push_back(mask);
  }
  Send(plan_);
  ++published_;
}

// A slot is free: every rank has answered, hence read, the plan that was there.
void SharedMemoryTransport::Send(const StepPlan& plan) {
  EncodePlan(plan, plans_.slot(published_));
  plans_.Publish();
}

const StepResult* SharedMemoryTransport::Poll() {
  if (in_flight() == 0 || !fault_.empty()) return nullptr;
  if (joined_) return &results_.front();
  for (int32_t rank = 0; rank < memory_->shape().ranks; ++rank) {
    const uint64_t finished = memory_->results(rank).published();
    if (finished <= released_) return nullptr;
    if (finished > published_) {
      fault_ = "rank " + std::to_string(rank) + " says that it finished step " +
               std::to_string(finished) + " of " + std::to_string(published_);
      return nullptr;
    }
  }
  for (int32_t rank = 0; rank < memory_->shape().ranks; ++rank) {
    if (!Read(rank, results_[rank])) return nullptr;
    if (rank > 0) JoinReadings(results_[rank], results_.front());
  }
  joined_ = true;
  return &results_.front();
}

bool SharedMemoryTransport::Read(int32_t rank, StepResult& result) {
  const Expected& expected = expected_[released_ % expected_.size()];
  const std::string step = " at step " + std::to_string(expected.step);
  if (!DecodeResult(memory_->results(rank).slot(released_), result)) {
    fault_ = "rank " + std::to_string(rank) + " published bytes that are no result" + step;
    return false;
  }
  if (const std::string what = FaultOf(result, expected); !what.empty()) {
    fault_ = "rank " + std::to_string(rank) + " published " + what + step;
    return false;
  }
  if (result.checksum != results_.front().checksum) {
    fault_ = DescribeMismatch(results_.front(), rank, result);
    ++rank_mismatches_;
    return false;
  }
  return true;
}

std::string SharedMemoryTransport::FaultOf(const StepResult& result,
                                           const Expected& expected) const {
  if (result.step != expected.step) return "the result of step " + std::to_string(result.step);
  if (result.samples.size() != expected.rows.size()) {
    return std::to_string(result.samples.size()) + " samples instead of " +
           std::to_string(expected.rows.size());
  }
  auto late = expected.late.begin();  // of the next row with one: both are in the plan's order
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    const auto& [row, sample] = result.samples[i];
    if (row != expected.rows[i]) return "a sample of the wrong row";
    const bool in_vocabulary = 0 <= sample.token && sample.token < vocab_size_;
    if (!in_vocabulary && !sample.nonfinite) return "a token outside the vocabulary";
    const bool is_late = late != expected.late.end() && late->row == row;
    const bool drew = sample.nonfinite != SampleResult::kNoMask;
    if (!drew && !is_late) return "a draw that misses a mask, which it has";
    // The scheduler has the guide, which takes the token, only once the mask is made.
    if (drew && is_late && !masks_.IsPosted(expected.step, static_cast<int32_t>(late->begin))) {
      return "a token drawn with a mask that it has not";
    }
    if (is_late) ++late;
  }
  if (result.reading_words.size() != expected.reading_words) {
    return std::to_string(result.reading_words.size()) + " words of readings instead of " +
           std::to_string(expected.reading_words);
  }
  for (const PartTime& part : result.parts) {
    if (static_cast<uint32_t>(part.part) >= kNumStepParts) return "times of an unknown part";
  }
  return "";
}

void SharedMemoryTransport::Release() {
  CHECK_GT(in_flight(), 0);
  CHECK(joined_);
  joined_ = false;
  ++released_;
}

}  // namespace quire
