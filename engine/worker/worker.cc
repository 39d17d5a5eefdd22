// One step of one rank: apply the plan, run the model, sample, report.
#include "engine/worker/worker.h"

#include <string>
#include <utility>

#include "engine/base/clock.h"

namespace quire {
namespace {

// FNV-1a over what every rank must agree on.
uint64_t Checksum(const StepResult& result) {
  uint64_t hash = 14695981039346656037ull;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  mix(result.step);
  for (const SampledToken& sample : result.samples) {
    mix(static_cast<uint32_t>(sample.row));
    mix(static_cast<uint32_t>(sample.result.token));
  }
  return hash;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const WorkerOptions& options,
                                                       std::unique_ptr<Backend> backend,
                                                       std::unique_ptr<Model> model,
                                                       KvCache cache) {
  const size_t bytes = sizeof(float) * options.max_num_seqs * options.vocab_size;
  Buffer logits = backend->Allocate(bytes);
  if (logits.empty()) {
    return absl::ResourceExhaustedError("no memory for the logits of --max-num-seqs " +
                                        std::to_string(options.max_num_seqs) + " sequences (" +
                                        std::to_string(bytes) + " bytes)");
  }
  return std::unique_ptr<Worker>(new Worker(options, std::move(backend), std::move(model),
                                            std::move(cache), std::move(logits)));
}

Worker::Worker(const WorkerOptions& options, std::unique_ptr<Backend> backend,
               std::unique_ptr<Model> model, KvCache cache, Buffer logits)
    : options_(options),
      backend_(std::move(backend)),
      cache_(std::move(cache)),
      logits_(std::move(logits)),
      model_(std::move(model)),
      tables_(options.max_num_seqs, options.max_model_len, cache_.layout().block_size),
      builder_(options.max_num_batched_tokens, options.max_num_seqs) {
  jobs_.reserve(options.max_num_seqs);
  sampled_.reserve(options.max_num_seqs);
}

void Worker::Run(const StepPlan& plan, StepResult& result) {
  result.step = plan.step;
  result.started_ns = SteadyNowNs();
  result.samples.clear();
  tables_.Apply(plan);
  const ModelInput input = builder_.Build(plan, tables_);
  const TensorView logits(logits_.data(), DType::kF32, {plan.num_samples, options_.vocab_size});
  model_->Forward(input, cache_, logits);
  Sample(plan, result);
  result.checksum = Checksum(result);
  result.finished_ns = SteadyNowNs();
}

void Worker::Sample(const StepPlan& plan, StepResult& result) {
  jobs_.clear();
  for (const RowWork& work : plan.work) {
    if (work.sample) jobs_.push_back(tables_.Job(work.row, work.start + work.count));
  }
  sampled_.resize(jobs_.size());
  if (!jobs_.empty()) {
    const TensorView logits(logits_.data(), DType::kF32, {plan.num_samples, options_.vocab_size});
    backend_->Sample({.logits = logits, .jobs = jobs_.data(), .results = sampled_.data()});
  }
  backend_->Synchronize();
  size_t next = 0;
  for (const RowWork& work : plan.work) {
    if (!work.sample) continue;
    const SampleResult& sampled = sampled_[next++];
    tables_.SetToken(work.row, work.start + work.count, sampled.token);
    result.samples.push_back({work.row, sampled});
  }
}

}  // namespace quire
