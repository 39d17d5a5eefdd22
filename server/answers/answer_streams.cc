// All streams are registered before the first one starts: from then on the call may end, and with
// it this, at any time. Whatever runs later holds the streams by itself.
#include "server/answers/answer_streams.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/values/admission.h"
#include "server/answers/answer_member.h"
#include "server/answers/held_answers.h"
#include "server/call/status_codec.h"
#include "server/generate/call_opening.h"
#include "server/generate/refusals.h"
#include "server/tracing/request_trace.h"

namespace quire {
namespace {

using Streams = std::vector<std::shared_ptr<GenerationStream>>;

void SubmitAnswers(const GenerateResources* resources, const Streams& streams,
                   const AnswerCounts& counts, std::unique_ptr<Request> request,
                   const OutputOptions& output) {
  const ServingModel& model = resources->model;
  absl::Status fits = FitToContext(ContextLimitOf(model), *request);
  if (!fits.ok()) {
    return streams[0]->Refuse(FromEngine(fits, resources->drain, resources->engine));
  }
  const bool cache = model.setup.config.enable_prefix_caching;
  fits = FitTogether({.kv_blocks = model.setup.memory.num_blocks - 1,
                      .block_size = model.setup.memory.block_size,
                      .shares_prompt = cache && !request->bypass_cache},
                     *request, counts.best_of);
  if (!fits.ok()) {
    const char* const field = counts.best_of > counts.n ? "best_of" : "n";
    return streams[0]->Refuse(InvalidField(field, std::string(fits.message())));
  }
  SubmitToEngine(resources, streams, AnswersOf(*request, streams.size()), output);
}

}  // namespace

AnswerStreams::AnswerStreams(const GenerateResources* resources, SharedWriter* writer,
                             const GenerationStream::Origin& origin, bool one_reply,
                             std::unique_ptr<RequestTrace> trace)
    : resources_(resources), writer_(writer), origin_(origin), one_reply_(one_reply) {
  Add(std::move(trace));
}

const std::shared_ptr<GenerationStream>& AnswerStreams::first() const {
  return members_.front()->stream();
}

void AnswerStreams::Add(std::unique_ptr<RequestTrace> trace) {
  const auto index = static_cast<uint32_t>(members_.size());
  members_.push_back(
      std::make_shared<AnswerMember>(resources_, writer_, index, origin_, std::move(trace)));
  writer_->Join(members_.back());
}

absl::Status AnswerStreams::Open(const ParsedRequest& parsed,
                                 const std::function<absl::Status()>& enter) {
  const AnswerCounts& counts = parsed.answers;
  while (members_.size() < static_cast<size_t>(counts.best_of)) {
    RETURN_IF_ERROR(enter());
    Add(nullptr);
  }
  RETURN_IF_ERROR(Register(resources_, first(), parsed.request_id));
  const auto group = std::make_shared<AnswerGroup>(counts);
  std::shared_ptr<HeldAnswers> held;
  if (one_reply_ || counts.best_of > counts.n) {
    held = std::make_shared<HeldAnswers>(resources_, counts, one_reply_, writer_);
  }
  using Shape = GenerationStream::Shape;
  const Shape shape = one_reply_ ? Shape::kUnary : held != nullptr ? Shape::kHeld : Shape::kStream;
  for (size_t index = 0; index < members_.size(); ++index) {
    members_[index]->Join(group, held);
    members_[index]->stream()->SendAs(shape, counts.best_of);
    if (index == 0) continue;
    RegisterAnswer(resources_, members_[index]->stream(), *first());
  }
  return absl::OkStatus();
}

void AnswerStreams::Send(ParsedRequest parsed) {
  const GenerateResources* const resources = resources_;
  Streams streams;
  for (const auto& member : members_) streams.push_back(member->stream());
  const std::shared_ptr<GenerationStream> first = streams[0];
  SubmitRequest submit;
  if (parsed.answers.several()) {
    submit = [resources, streams, counts = parsed.answers](std::unique_ptr<Request> request,
                                                           const OutputOptions& output) {
      SubmitAnswers(resources, streams, counts, std::move(request), output);
    };
  }
  writer_->Close(absl::OkStatus());
  const absl::Status status = SendToEngine(resources, first, std::move(parsed), std::move(submit));
  if (!status.ok()) first->Refuse(status);
}

}  // namespace quire
