// A slice has tokens of one kind: scores, or sums. Sums that a slice's end divides go on in the
// next.
#include "engine/worker/rank/step_readings.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {
namespace {

int64_t MaxPools(const StepReadings::Shape& shape) {
  return shape.max_rows + CeilDiv<int64_t>(shape.max_tokens, shape.slice_rows) + 1;
}

int64_t MaxWords(const StepReadings::Shape& shape) {
  return MaxReadingWords(shape.max_rows, shape.max_tokens, shape.hidden_size);
}

}  // namespace

class StepReadings::Writer {
 public:
  Writer(const StepReadings& readings, const RowTables& tables, Slot slot)
      : readings_(readings), tables_(tables), slot_(slot) {}

  // The score of a drawn token: row `sample` of the step's logits.
  void AddDrawn(const StepReading& reading, int32_t row, int32_t sample, const RowRange& mine) {
    if (sample < mine.begin || sample >= mine.begin + mine.count) return;
    ScoreJob job = Score(reading, row, 0);
    job.row = static_cast<int32_t>(sample - mine.begin);
    *Take(slot_.scores, num_scores_) = job;
  }
  std::span<const ScoreJob> drawn() const { return {slot_.scores, num_scores_}; }

  // `token`: of the reading's first position, or for scores of the one before, in the step.
  void AddScores(const StepReading& reading, int32_t row, int32_t token) {
    for (int32_t i = 0; i < reading.count; ++i) {
      *Take(slot_.scores, num_scores_) = Score(reading, row, i);
      *Take(slot_.rows, num_rows_) = token + i;
    }
  }
  // Cuts the scores added since the last call into slices. In each, this rank has the jobs of its
  // rows.
  void CutScores(size_t first_score, std::vector<Slice>& slices) {
    const size_t slice_rows = readings_.shape_.slice_rows;
    for (size_t begin = 0; begin < num_rows_; begin += slice_rows) {
      const size_t count = std::min(slice_rows, num_rows_ - begin);
      const RankOf group = readings_.group_;
      const RowRange mine = RowsOf(group.rank, group.ranks, static_cast<int64_t>(count));
      ScoreJob* const jobs = slot_.scores + first_score + begin + mine.begin;
      for (int32_t i = 0; i < mine.count; ++i) jobs[i].row = i;
      slices.push_back({.rows = {slot_.rows + begin, count},
                        .scores = {jobs, static_cast<size_t>(mine.count)},
                        .pools = {}});
    }
  }

  void AddSum(const StepReading& reading, int32_t token, std::vector<Slice>& slices) {
    auto* const out = reinterpret_cast<float*>(slot_.words + reading.begin);
    for (int32_t done = 0; done < reading.count;) {
      const auto slice_rows = static_cast<size_t>(readings_.shape_.slice_rows);
      if (slices.empty() || slices.back().pools.empty() ||
          slices.back().rows.size() == slice_rows) {
        slices.push_back({.rows = {slot_.rows + num_rows_, 0},
                          .scores = {},
                          .pools = {slot_.pools + num_pools_, 0}});
      }
      Slice& slice = slices.back();
      const auto begin = static_cast<int32_t>(slice.rows.size());
      const int32_t count = std::min(reading.count - done, readings_.shape_.slice_rows - begin);
      *Take(slot_.pools, num_pools_) = {
          .out = out, .begin = begin, .count = count, .adds = done > 0};
      for (int32_t i = 0; i < count; ++i) *Take(slot_.rows, num_rows_) = token + done + i;
      slice.rows = {slice.rows.data(), slice.rows.size() + static_cast<size_t>(count)};
      slice.pools = {slice.pools.data(), slice.pools.size() + 1};
      done += count;
    }
  }

 private:
  template <typename T>
  static T* Take(T* array, size_t& used) {
    return array + used++;
  }

  // Of the reading's i-th token, which is in the row's table when the job runs.
  ScoreJob Score(const StepReading& reading, int32_t row, int32_t i) const {
    const auto words = static_cast<uint32_t>(ScoreWords(reading.num_top, reading.num_ids));
    return {.token = tables_.tokens(row) + reading.position + i,
            .ids = tables_.scored_ids(row),
            .out = slot_.words + reading.begin + static_cast<uint32_t>(i) * words,
            .row = 0,
            .num_top = reading.num_top,
            .num_ids = reading.num_ids};
  }

  const StepReadings& readings_;
  const RowTables& tables_;
  const Slot slot_;
  size_t num_scores_ = 0;
  size_t num_pools_ = 0;
  size_t num_rows_ = 0;
};

int64_t StepReadings::SlotBytes() const {
  constexpr int64_t kAlignment = 256;
  const int64_t rows = int64_t{shape_.max_tokens} + shape_.max_rows;
  return RoundUp(rows * int64_t{sizeof(ScoreJob)}, kAlignment) +
         RoundUp(MaxPools(shape_) * int64_t{sizeof(PoolJob)}, kAlignment) +
         RoundUp(int64_t{shape_.max_tokens} * 4, kAlignment) +
         RoundUp(MaxWords(shape_) * 4, kAlignment);
}

absl::StatusOr<StepReadings> StepReadings::Create(const Shape& shape, Backend& backend) {
  StepReadings readings;
  readings.shape_ = shape;
  readings.group_ = backend.group();
  const int64_t bytes = readings.SlotBytes() * shape.slots;
  readings.host_ = backend.AllocateHost(static_cast<size_t>(bytes));
  if (readings.host_.empty()) {
    return absl::ResourceExhaustedError(
        "no host memory for the readings of steps of " + std::to_string(shape.max_tokens) +
        " tokens (" + std::to_string(bytes) + " bytes); lower --max-num-batched-tokens");
  }
  return readings;
}

StepReadings::Slot StepReadings::SlotOf(uint64_t step) const {
  char* at = static_cast<char*>(host_.data()) +
             static_cast<int64_t>(step % static_cast<uint64_t>(shape_.slots)) * SlotBytes();
  const auto take = [&at](int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    char* const begin = at;
    at += RoundUp(bytes, kAlignment);
    return begin;
  };
  const int64_t rows = int64_t{shape_.max_tokens} + shape_.max_rows;
  Slot slot;
  slot.scores = reinterpret_cast<ScoreJob*>(take(rows * int64_t{sizeof(ScoreJob)}));
  slot.pools = reinterpret_cast<PoolJob*>(take(MaxPools(shape_) * int64_t{sizeof(PoolJob)}));
  slot.rows = reinterpret_cast<int32_t*>(take(int64_t{shape_.max_tokens} * 4));
  slot.words = reinterpret_cast<uint32_t*>(take(MaxWords(shape_) * 4));
  return slot;
}

StepReadings::Jobs StepReadings::Write(const StepPlan& plan, const RowTables& tables,
                                       int32_t num_samples, uint64_t step) {
  const Slot slot = SlotOf(step);
  CHECK_LE(static_cast<int64_t>(plan.reading_words()), MaxWords(shape_));
  std::fill_n(slot.words, plan.reading_words(), 0u);
  Writer writer(*this, tables, slot);
  const RowRange mine = RowsOf(group_.rank, group_.ranks, num_samples);
  // The first token, and the sample, of each work.
  std::vector<int32_t> tokens(plan.work.size() + 1, 0), samples(plan.work.size() + 1, 0);
  for (size_t i = 0; i < plan.work.size(); ++i) {
    tokens[i + 1] = tokens[i] + plan.work[i].count;
    samples[i + 1] = samples[i] + plan.work[i].sample;
  }
  const auto each = [&](StepReading::Kind kind, auto fn) {
    for (const StepReading& reading : plan.readings) {
      CHECK(reading.work >= 0 && static_cast<size_t>(reading.work) < plan.work.size());
      if (reading.kind == kind) fn(reading, plan.work[static_cast<size_t>(reading.work)]);
    }
  };
  Jobs jobs;
  each(StepReading::Kind::kDrawn, [&](const StepReading& reading, const RowWork& work) {
    writer.AddDrawn(reading, work.row, samples[static_cast<size_t>(reading.work)], mine);
  });
  jobs.drawn = writer.drawn();
  each(StepReading::Kind::kPrompt, [&](const StepReading& reading, const RowWork& work) {
    const int32_t before = reading.position - 1 - work.start;
    CHECK(before >= 0 && before + reading.count <= work.count);
    writer.AddScores(reading, work.row, tokens[static_cast<size_t>(reading.work)] + before);
  });
  writer.CutScores(jobs.drawn.size(), jobs.slices);
  each(StepReading::Kind::kPooled, [&](const StepReading& reading, const RowWork& work) {
    const int32_t first = reading.position - work.start;
    CHECK(first >= 0 && first + reading.count <= work.count);
    CHECK_EQ(reading.words, static_cast<uint32_t>(shape_.hidden_size));
    writer.AddSum(reading, tokens[static_cast<size_t>(reading.work)] + first, jobs.slices);
  });
  return jobs;
}

std::span<const uint32_t> StepReadings::words(uint64_t step, size_t count) const {
  return {SlotOf(step).words, count};
}

}  // namespace quire
