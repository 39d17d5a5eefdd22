// The cache, the vocabulary, which the first grammar pays for, and the threads that compile.
#include "server/structured/guide_maker.h"

#include <optional>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/metrics/guide_metrics.h"

namespace quire {
namespace {

size_t BytesOf(const GrammarSource& source) {
  size_t bytes = source.text.size();
  for (const std::string& choice : source.choices) bytes += choice.size();
  return bytes;
}

}  // namespace

GuideMaker::GuideMaker(const ServingModel* model, GuideMetrics* metrics, Compile compile)
    : model_(*model),
      metrics_(*metrics),
      compile_(std::move(compile)),
      cache_(kMaxGuides, kMaxCachedBytes),
      vocabulary_(absl::InternalError("not made")),
      call_vocabulary_(absl::InternalError("not made")),
      marks_(absl::InternalError("not made")),
      pool_(kThreads, kMaxJobs, kMaxWaitingBytes) {}

absl::Status GuideMaker::CheckModel() const {
  if (model_.tokenizer == nullptr) {
    return Refusal(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER",
                   "structured_output: this server has no tokenizer (--skip-tokenizer-init)");
  }
  if (model_.setup.model.eos_token_ids.empty()) {
    return Refusal(absl::StatusCode::kFailedPrecondition, "NO_END_TOKEN",
                   "structured_output: the model has no end token, so no text could end");
  }
  return absl::OkStatus();
}

absl::Status GuideMaker::Make(TenantId tenant, const GrammarSource& source, Done done) {
  RETURN_IF_ERROR(CheckModel());
  if (Guide guide = cache_.Find(tenant, source); guide != nullptr) {
    metrics_.Found();
    done(std::move(guide));
    return absl::OkStatus();
  }
  const absl::Status queued = pool_.Run(
      tenant, BytesOf(source),
      [this, tenant, source, done = std::move(done)] { done(CompileNow(tenant, source)); });
  if (ReasonOf(queued) != "QUEUE_FULL") return queued;
  return Refusal(absl::StatusCode::kUnavailable, "QUEUE_FULL",
                 "structured_output: too many structures wait to be compiled; retry later", 1);
}

absl::Status GuideMaker::MakeReasoned(TenantId tenant, const ReasoningPlan& plan,
                                      const GrammarSource* answer, Done done) {
  const auto reasoned = [this, plan, done = std::move(done)](absl::StatusOr<Guide> guide) {
    done(Reasoned(plan, std::move(guide)));
  };
  if (answer != nullptr) return Make(tenant, *answer, reasoned);
  RETURN_IF_ERROR(CheckModel());
  return pool_.Run(tenant, 0, [reasoned] { reasoned(Guide()); });
}

absl::StatusOr<GuideMaker::Guide> GuideMaker::Reasoned(const ReasoningPlan& plan,
                                                       absl::StatusOr<Guide> answer) {
  RETURN_IF_ERROR(answer.status());
  ASSIGN_OR_RETURN(std::shared_ptr<const EndMarks> marks, Marks());
  return std::make_shared<const ReasoningGuide>(std::move(marks), plan, *std::move(answer));
}

absl::StatusOr<std::shared_ptr<const EndMarks>> GuideMaker::Marks() {
  std::call_once(marks_made_, [this] { marks_ = MakeMarks(); });
  return marks_;
}

absl::StatusOr<std::shared_ptr<const EndMarks>> GuideMaker::MakeMarks() {
  ASSIGN_OR_RETURN(std::shared_ptr<const GuideVocabulary> vocabulary, Vocabulary());
  const ReasoningFormat& format = *model_.reasoning_format;
  ReasoningMarks marks = {.begin = {}, .end = {}, .end_text = std::string(format.end)};
  for (const auto& [text, ids] :
       {std::pair(format.begin, &marks.begin), std::pair(format.end, &marks.end)}) {
    RETURN_IF_ERROR(
        model_.tokenizer->Encode(text, /*add_special=*/false, /*parse_special=*/true, ids));
  }
  return std::make_shared<const EndMarks>(std::move(marks), std::move(vocabulary));
}

absl::StatusOr<GuideMaker::Guide> GuideMaker::CompileNow(TenantId tenant,
                                                         const GrammarSource& source) {
  // Another request may have had it compiled meanwhile.
  if (Guide guide = cache_.Find(tenant, source); guide != nullptr) {
    metrics_.Found();
    return guide;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const GuideVocabulary> vocabulary,
                   source.frame ? CallVocabulary() : Vocabulary());
  const int64_t began_ns = SteadyNowNs();
  absl::StatusOr<Guide> guide = compile_(source, std::move(vocabulary));
  metrics_.Compiled(guide.ok(), static_cast<double>(SteadyNowNs() - began_ns) * 1e-9);
  if (!guide.ok()) return guide.status();
  cache_.Insert(tenant, source, *guide);
  metrics_.CacheHolds(cache_.bytes());
  return guide;
}

std::vector<std::string> GuideMaker::TokenBytes() const {
  std::vector<std::string> bytes(static_cast<size_t>(model_.setup.model.vocab_size));
  for (size_t id = 0; id < bytes.size(); ++id) {
    bytes[id] = model_.tokenizer->TokenBytes(static_cast<int32_t>(id));
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<const GuideVocabulary>> GuideMaker::Vocabulary() {
  std::call_once(vocabulary_made_, [this] {
    vocabulary_ = GuideVocabulary::Make(TokenBytes(), model_.setup.model.eos_token_ids);
  });
  return vocabulary_;
}

absl::StatusOr<std::shared_ptr<const GuideVocabulary>> GuideMaker::CallVocabulary() {
  std::vector<int32_t> marks;
  for (const std::string& mark : model_.call_format->marks) {
    const std::optional<int32_t> id = model_.tokenizer->IdOf(mark);
    if (id && model_.tokenizer->IsSpecial(*id) && *id < model_.setup.model.vocab_size) {
      marks.push_back(*id);
    }
  }
  if (marks.empty()) return Vocabulary();
  std::call_once(call_vocabulary_made_, [this, &marks] {
    std::vector<std::string> bytes = TokenBytes();
    for (const int32_t id : marks) {
      bytes[static_cast<size_t>(id)] = model_.tokenizer->TokenBytes(id, /*skip_special=*/false);
    }
    call_vocabulary_ = GuideVocabulary::Make(std::move(bytes), model_.setup.model.eos_token_ids);
  });
  return call_vocabulary_;
}

absl::Status CheckFirstToken(const CompiledGuide& guide, const SamplingParams& sampling,
                             int32_t vocab_size) {
  if (sampling.allowed_token_ids.empty() && sampling.bad_words.empty()) return absl::OkStatus();
  std::vector<uint32_t> mask(static_cast<size_t>(vocab_size + 31) / 32);
  guide.Start()->FillMask(mask);
  std::vector<uint32_t> kept(mask.size(), sampling.allowed_token_ids.empty() ? ~0u : 0u);
  for (const int32_t id : sampling.allowed_token_ids) kept[id / 32] |= 1u << (id % 32);
  bool begins_word = true;  // words of one id are banned everywhere
  for (const int32_t id : sampling.bad_words) {
    if (begins_word && id < 0) kept[~id / 32] &= ~(1u << (~id % 32));
    begins_word = id < 0;
  }
  for (size_t i = 0; i < mask.size(); ++i) {
    if ((mask[i] & kept[i]) != 0) return absl::OkStatus();
  }
  return InvalidField(sampling.allowed_token_ids.empty() ? "sampling.banned_token_ids"
                                                         : "sampling.allowed_token_ids",
                      "no first token of structured_output is left");
}

}  // namespace quire
