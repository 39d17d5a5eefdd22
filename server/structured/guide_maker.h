// GuideMaker: makes a request's structure a compiled grammar, on threads of its own. A grammar that
// takes long to compile delays others that are to be compiled, by a bounded time; it delays no
// request without a structure, and none whose grammar is cached.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/compile_guide.h"
#include "engine/grammar/reasoning_guide.h"
#include "engine/values/request.h"
#include "server/call/serving_model.h"
#include "server/call/text_pool.h"
#include "server/structured/guide_cache.h"

namespace quire {

class GuideMetrics;

class GuideMaker {
 public:
  using Guide = std::shared_ptr<const CompiledGuide>;
  using Compile = std::function<absl::StatusOr<Guide>(const GrammarSource&,
                                                      std::shared_ptr<const GuideVocabulary>)>;
  using Done = std::function<void(absl::StatusOr<Guide>)>;

  // The pointers outlive this. `compile` is called on several threads at once.
  GuideMaker(const ServingModel* model, GuideMetrics* metrics, Compile compile);

  // Calls `done` with the guide, or with the INVALID_ARGUMENT of CompileGuide: before it returns if
  // the grammar is cached, else on another thread. Not OK: `done` is not called; UNAVAILABLE when
  // too many wait, FAILED_PRECONDITION without a tokenizer (NO_TOKENIZER) or an end token
  // (NO_END_TOKEN). Any thread.
  absl::Status Make(TenantId tenant, const GrammarSource& source, Done done);
  // The same for an answer behind reasoning, which the server's format marks; no `answer`: it is
  // free.
  absl::Status MakeReasoned(TenantId tenant, const ReasoningPlan& plan, const GrammarSource* answer,
                            Done done);
  // Compiles what waits, then takes no more. Idempotent; not thread-safe.
  void Stop() { pool_.Stop(); }

 private:
  static constexpr int kThreads = 2;
  static constexpr size_t kMaxJobs = 256;
  static constexpr size_t kMaxWaitingBytes = size_t{32} << 20;
  static constexpr size_t kMaxGuides = 256;
  static constexpr size_t kMaxCachedBytes = size_t{256} << 20;

  absl::Status CheckModel() const;
  absl::StatusOr<std::shared_ptr<const GuideVocabulary>> Vocabulary();
  // With the marks of calls, which may be special tokens, as texts.
  absl::StatusOr<std::shared_ptr<const GuideVocabulary>> CallVocabulary();
  std::vector<std::string> TokenBytes() const;
  absl::StatusOr<std::shared_ptr<const EndMarks>> Marks();
  absl::StatusOr<std::shared_ptr<const EndMarks>> MakeMarks();
  // `answer` with reasoning before it.
  absl::StatusOr<Guide> Reasoned(const ReasoningPlan& plan, absl::StatusOr<Guide> answer);
  absl::StatusOr<Guide> CompileNow(TenantId tenant, const GrammarSource& source);

  const ServingModel& model_;
  GuideMetrics& metrics_;
  const Compile compile_;
  GuideCache cache_;
  std::once_flag vocabulary_made_;
  absl::StatusOr<std::shared_ptr<const GuideVocabulary>> vocabulary_;
  std::once_flag call_vocabulary_made_;
  absl::StatusOr<std::shared_ptr<const GuideVocabulary>> call_vocabulary_;
  std::once_flag marks_made_;
  absl::StatusOr<std::shared_ptr<const EndMarks>> marks_;
  TextPool pool_;
};

// INVALID_ARGUMENT if allowed ids, banned ids and bad words of one id leave no first token.
absl::Status CheckFirstToken(const CompiledGuide& guide, const SamplingParams& sampling,
                             int32_t vocab_size);

}  // namespace quire
