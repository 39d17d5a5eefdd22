// One step of one rank: write its message, enqueue its operations, collect the sampled tokens.
#include "engine/worker/rank/worker.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/model/linear.h"
#include "engine/worker/rank/row_tables.h"
#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {
namespace {

// A hash of the values that must be equal on every rank.
uint64_t Checksum(const StepResult& result, int32_t graph_size) {
  XXH64_hash_t hash = XXH3_64bits_withSeed(&graph_size, sizeof graph_size, result.step);
  for (const SampledToken& sample : result.samples) {
    const int32_t drawn[] = {sample.row, sample.result.token};
    hash = XXH3_64bits_withSeed(drawn, sizeof drawn, hash);
  }
  return hash;
}

// Numbers of tokens up to `largest`, which comes first: a product's kernel for it is chosen with
// those for all below. They are close enough to meet each kernel's own numbers, in a start that
// reads its choices from a file too.
std::vector<int32_t> WarmUpSizes(int32_t largest) {
  std::vector<int32_t> sizes = {largest};
  const auto add = [&](int32_t size) {
    if (size < largest) sizes.push_back(size);
  };
  for (const int32_t size : {1, 2, 4, 8}) add(size);
  for (int32_t size = 16; size < largest; size *= 2) {
    for (const int32_t quarters : {4, 5, 6, 7}) {
      if (size >= 256 || quarters % 2 == 0) add(size / 4 * quarters);
    }
  }
  return sizes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const WorkerOptions& options,
                                                       std::unique_ptr<Backend> backend,
                                                       std::unique_ptr<Model> model,
                                                       KvCache cache) {
  const RowTables::Shape shape = {.num_rows = options.max_num_seqs,
                                  .max_model_len = options.max_model_len,
                                  .block_size = cache.layout().block_size,
                                  .vocab_size = options.vocab_size,
                                  .step_guesses = options.step_guesses};
  std::unique_ptr<Worker> worker(
      new Worker(options, std::move(backend), std::move(model), std::move(cache)));
  ASSIGN_OR_RETURN(worker->tables_, RowTables::Create(shape, *worker->backend_));
  ASSIGN_OR_RETURN(worker->arrays_, StepArrays::Create(shape, options.max_num_batched_tokens,
                                                       options.steps_in_flight, *worker->backend_));
  ASSIGN_OR_RETURN(worker->readings_,
                   StepReadings::Create({.max_rows = options.max_num_seqs,
                                         .max_tokens = options.max_num_batched_tokens,
                                         .slice_rows = options.max_num_seqs,
                                         .hidden_size = options.hidden_size,
                                         .slots = options.steps_in_flight},
                                        *worker->backend_));
  RETURN_IF_ERROR(worker->AllocateLogits());
  return worker;
}

int64_t Worker::LogitsBytes(int32_t max_draws, int32_t vocab_size, int32_t ranks) {
  const int64_t columns = Vocabulary::LocalRows(vocab_size, {.size = ranks});
  const int64_t rows = ranks == 1 ? 0 : MostRows(max_draws, ranks);
  return int64_t{sizeof(float)} * columns * (max_draws + rows * ranks);
}

absl::Status Worker::AllocateLogits() {
  const int32_t ranks = backend_->ranks();
  const int64_t total = LogitsBytes(options_.max_draws(), options_.vocab_size, ranks);
  const int64_t columns = Vocabulary::LocalRows(options_.vocab_size, {.size = ranks});
  const auto local = static_cast<size_t>(columns * options_.max_draws()) * sizeof(float);
  logits_ = backend_->Allocate(local);
  if (ranks > 1) rows_ = backend_->AllocateShared(static_cast<size_t>(total) - local);
  if (!logits_.empty() && (ranks == 1 || !rows_.empty())) return absl::OkStatus();
  return absl::ResourceExhaustedError("no memory for the logits of --max-num-seqs " +
                                      std::to_string(options_.max_num_seqs) + " sequences (" +
                                      std::to_string(total) + " bytes)");
}

Worker::Worker(const WorkerOptions& options, std::unique_ptr<Backend> backend,
               std::unique_ptr<Model> model, KvCache cache)
    : options_(options),
      backend_(std::move(backend)),
      cache_(std::move(cache)),
      model_(std::move(model)),
      flights_(options.steps_in_flight) {
  for (Flight& flight : flights_) flight.rows.reserve(options.max_draws());
}

void Worker::AttachHostArena(std::shared_ptr<HostArena> arena, bool checksum) {
  copies_ =
      std::make_unique<PoolCopies>(cache_, std::move(arena), backend_->MakeBlockCopier(), checksum);
}

bool Worker::AttachMasks(const MaskBoard& board) {
  tables_.SetMasks(board);
  return board.empty() || backend_->UseInPlace(board.bytes().data(), board.bytes().size());
}

void Worker::WarmUp() {
  // No step has more tokens than the contexts of all its rows.
  const auto largest = static_cast<int32_t>(std::min<int64_t>(
      options_.max_num_batched_tokens, int64_t{options_.max_num_seqs} * options_.max_model_len));
  for (const int32_t size : WarmUpSizes(largest)) {
    RunPadding({.num_tokens = size, .longest = options_.max_model_len, .draws_all = false});
  }
  // Prefills draw for few of their tokens, so they cannot stand for steps that draw for all.
  for (const int32_t size : WarmUpSizes(std::min(options_.max_draws(), largest))) {
    RunPadding({.num_tokens = size, .longest = CeilDiv(size, options_.max_num_seqs)});
  }
  for (size_t i = options_.graph_sizes.size(); i-- > 0;) {
    RunPadding({.num_tokens = options_.graph_sizes[i]});
    RunPadding({.num_tokens = options_.graph_sizes[i]}, /*capture=*/true);
  }
  WarmUpReadings();
}

// A device loads a kernel when it first runs.
void Worker::WarmUpReadings() {
  using Kind = StepReading::Kind;
  constexpr uint32_t kWords = ScoreWords(0, 0);
  RunPadding({});
  StepPlan plan;
  plan.work.push_back({.row = tables_.padding_row(), .start = 0, .count = 1, .sample = 1});
  plan.readings.push_back({.kind = Kind::kDrawn, .position = 1, .count = 1, .words = kWords});
  plan.readings.push_back(
      {.kind = Kind::kPrompt, .position = 1, .count = 1, .begin = kWords, .words = kWords});
  if (options_.hidden_size > 0) {
    plan.readings.push_back({.kind = Kind::kPooled,
                             .count = 1,
                             .begin = 2 * kWords,
                             .words = static_cast<uint32_t>(options_.hidden_size)});
  }
  Read(plan, {.num_tokens = 1, .num_seqs = 1, .num_samples = 1, .max_query_len = 1});
  backend_->Synchronize();
}

void Worker::RunPadding(const StepMessageWriter::Padding& padding, bool capture) {
  CHECK_EQ(launched_, collected_);
  const StepDims shape = StepMessageWriter::WritePadding(
      tables_, padding, arrays_.message(launched_), arrays_.message_capacity());
  backend_->RunCaptured(capture ? padding.num_tokens : 0, [&] { Enqueue(shape); });
  backend_->Synchronize();
  launched_ = ++collected_;
}

void Worker::Launch(const StepPlan& plan) {
  CHECK_LT(launched_ - collected_, flights_.size());
  Flight& flight = flights_[launched_ % flights_.size()];
  flight.step = plan.step;
  flight.graph_size = plan.graph_size;
  flight.started_ns = SteadyNowNs();
  flight.rows.clear();
  for (const RowWork& work : plan.work) {
    flight.rows.insert(flight.rows.end(), work.sample, work.row);
  }
  std::optional<LaunchGate::Launching> launching;
  if (copies_ != nullptr) launching.emplace(copies_->launch_gate());
  const NamedRange range(backend_->profiler(), "step", static_cast<int64_t>(plan.step));
  flight.timed = Watch(plan.watch);
  for (const BlockClone& clone : plan.block_clones) {
    backend_->CopyOnDevice(cache_.block_data(clone.to), cache_.block_data(clone.from),
                           static_cast<size_t>(cache_.layout().block_bytes()));
  }
  tables_.Apply(plan);
  const StepDims shape = StepMessageWriter::Write(
      plan, tables_, plan.graph_size, arrays_.message(launched_), arrays_.message_capacity());
  const bool captured = !flight.timed && !plan.watch.uncaptured;
  backend_->RunCaptured(captured ? plan.graph_size : 0, [&] { Enqueue(shape); });
  flight.reading_words = plan.reading_words();
  if (!plan.readings.empty()) Read(plan, shape);
  backend_->profiler().EndStep();
  flight.mark = backend_->Mark();
  flight.enqueued_ns = SteadyNowNs();
  ++launched_;
}

bool Worker::Watch(const StepWatch& watch) {
  StepProfiler& profiler = backend_->profiler();
  if (watch.recorded != recorded_) profiler.Record(watch.recorded);
  recorded_ = watch.recorded;
  return watch.timed && profiler.BeginStep();
}

void Worker::Enqueue(const StepDims& shape) {
  backend_->BeginStep(arrays_.Begin(shape, tables_));
  const TensorView logits = LogitsOf(shape.num_samples);
  model_->Forward(arrays_.Input(shape, tables_), cache_, logits);
  if (shape.num_samples > 0) Draw(logits);
  backend_->EndStep(arrays_.End(shape));
}

TensorView Worker::LogitsOf(int32_t num_rows) const {
  const int64_t columns = Vocabulary::LocalRows(options_.vocab_size, {.size = backend_->ranks()});
  return {logits_.data(), DType::kF32, {num_rows, columns}};
}

void Worker::Exchange(TensorView logits) {
  const int32_t ranks = backend_->ranks();
  if (ranks == 1) return;
  backend_->ColumnsToRows(
      logits, {rows_.data(), DType::kF32, {MostRows(logits.dim[0], ranks), logits.dim[1] * ranks}});
}

TensorView Worker::WholeRows(TensorView logits) const {
  const int32_t ranks = backend_->ranks();
  if (ranks == 1) return logits;
  const TensorView rows(rows_.data(), DType::kF32,
                        {MostRows(logits.dim[0], ranks), logits.dim[1] * ranks});
  const RowRange mine = RowsOf(backend_->rank(), ranks, logits.dim[0]);
  return rows.Rows(0, mine.count).Columns(0, options_.vocab_size);
}

void Worker::Draw(TensorView logits) {
  const int32_t ranks = backend_->ranks();
  SampleParams sample = arrays_.Sample(logits);
  if (ranks == 1) return backend_->Sample(sample);
  const auto num_rows = static_cast<int32_t>(logits.dim[0]);
  Exchange(logits);
  const ShareSamplesParams all{
      .jobs = sample.jobs, .results = sample.results, .num_rows = num_rows};
  const RowRange mine = RowsOf(backend_->rank(), ranks, num_rows);
  sample.logits = WholeRows(logits);
  sample.jobs += mine.begin;
  sample.results += mine.begin;
  if (mine.count > 0) backend_->Sample(sample);
  backend_->ShareSamples(all);
}

// The drawn tokens' logits come first: slices of prompts take their place.
void Worker::Read(const StepPlan& plan, const StepDims& shape) {
  const StepReadings::Jobs jobs = readings_.Write(plan, tables_, shape.num_samples, launched_);
  const auto score = [this](std::span<const ScoreJob> scores, TensorView logits) {
    if (scores.empty()) return;
    backend_->Score({.logits = WholeRows(logits),
                     .jobs = scores.data(),
                     .num_jobs = static_cast<int32_t>(scores.size())});
  };
  score(jobs.drawn, LogitsOf(shape.num_samples));
  for (const StepReadings::Slice& slice : jobs.slices) {
    const auto num_rows = static_cast<int32_t>(slice.rows.size());
    if (slice.pools.empty()) {
      const TensorView logits = LogitsOf(num_rows);
      model_->Logits(slice.rows.data(), num_rows, logits);
      Exchange(logits);
      score(slice.scores, logits);
      continue;
    }
    // Every rank has the same hidden states.
    const TensorView hidden = model_->Hidden(slice.rows.data(), num_rows);
    if (backend_->rank() > 0) continue;
    backend_->Pool({.x = hidden,
                    .jobs = slice.pools.data(),
                    .num_jobs = static_cast<int32_t>(slice.pools.size())});
  }
}

void Worker::Collect(StepResult& result) {
  const Flight& flight = flights_[collected_ % flights_.size()];
  backend_->WaitFor(flight.mark);
  const SampleResult* sampled = arrays_.results(collected_);
  result.step = flight.step;
  result.started_ns = flight.started_ns;
  result.enqueued_ns = flight.enqueued_ns;
  result.samples.clear();
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    result.samples.push_back({flight.rows[i], sampled[i]});
  }
  result.checksum = Checksum(result, flight.graph_size);
  const std::span<const uint32_t> words = readings_.words(collected_, flight.reading_words);
  result.reading_words.assign(words.begin(), words.end());
  result.parts.clear();
  if (flight.timed) backend_->profiler().Take(result.parts);
  result.finished_ns = SteadyNowNs();
  ++collected_;
}

void Worker::Run(const StepPlan& plan, StepResult& result) {
  Launch(plan);
  Collect(result);
}

absl::StatusOr<std::unique_ptr<Worker>> MakeWorker(const WorkerSpec& spec,
                                                   std::unique_ptr<Backend> backend,
                                                   std::shared_ptr<HostArena> arena) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LoadModel(spec.model_dir, spec.model, spec.tp, spec.model_options, *backend));
  ASSIGN_OR_RETURN(KvCache cache, KvCache::Create(*backend, spec.kv_layout, spec.num_blocks));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Worker> worker,
      Worker::Create(spec.worker, std::move(backend), std::move(model), std::move(cache)));
  if (arena != nullptr) worker->AttachHostArena(std::move(arena), spec.kv_checksum);
  return worker;
}

}  // namespace quire
