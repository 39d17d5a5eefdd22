// The way from a decoded request to the engine.
#include "server/generate/call_opening.h"

#define XXH_INLINE_ALL
#include <grpc/support/time.h>
#include <xxhash.h>

#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/call/turn_archive.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/identity/door.h"
#include "server/metrics/metrics.h"
#include "server/orca/load_report.h"
#include "server/structured/guide_maker.h"
#include "server/text/pattern/stop_mark.h"
#include "server/tracing/request_trace.h"
#include "server/tracing/tracer.h"

namespace quire {
namespace {

// A later deadline counts as none: thirty years, which 64 bits of nanoseconds can hold.
constexpr int64_t kLongestSeconds = 1'000'000'000;

// The call's deadline on the steady clock; the server's own when the client set none.
int64_t DeadlineNs(const grpc::CallbackServerContext& context, double default_seconds) {
  const int64_t now_ns = SteadyNowNs();
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return now_ns + static_cast<int64_t>(default_seconds * 1e9);
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > kLongestSeconds) return kNoDeadline;
  return now_ns + left.tv_sec * 1'000'000'000 + left.tv_nsec;
}

TraceHeaders HeadersOf(const grpc::ServerContextBase& context) {
  const auto text = [](grpc::string_ref value) { return std::string(value.data(), value.size()); };
  TraceHeaders headers;
  const auto [parent, parents_end] = context.client_metadata().equal_range("traceparent");
  headers.count = static_cast<size_t>(std::distance(parent, parents_end));
  if (headers.count > 0) headers.traceparent = text(parent->second);
  const auto [states, states_end] = context.client_metadata().equal_range("tracestate");
  for (auto state = states; state != states_end; ++state) {
    headers.tracestate += (headers.tracestate.empty() ? "" : ",") + text(state->second);
  }
  return headers;
}

// Whether the caller's key is good for what this request asks for.
absl::Status CheckMayAsk(const Caller& caller, const ParsedRequest& parsed) {
  if (!parsed.model.empty() && !caller.MayUse(parsed.model)) return StatusOf(Refused::kModel);
  if (parsed.request->session_turn.has_value() && !caller.scopes.Has(Scope::kSession)) {
    return StatusOf(Refused::kScope);
  }
  if (parsed.request->priority > caller.max_priority) {
    return Refusal(absl::StatusCode::kPermissionDenied, "PRIORITY",
                   "priority: must be at most " + std::to_string(caller.max_priority) +
                       " for this tenant, not " + std::to_string(parsed.request->priority));
  }
  return absl::OkStatus();
}

}  // namespace

CallAccount::CallAccount(const GenerateResources* resources, const char* method,
                         const IncomingCall& call)
    : resources_(resources),
      method_(method),
      call_(call),
      opened_ns_(SteadyNowNs()),
      slot_(resources->calls.connections.SlotOf(call.context->peer())) {}

GenerationStream::Origin CallAccount::StreamOrigin() const {
  return {call_.caller, slot_,
          DeadlineNs(*call_.context, resources_->calls.options.default_deadline_seconds)};
}

std::unique_ptr<RequestTrace> CallAccount::BeginTrace() const {
  Tracer* const tracer = resources_->calls.tracer;
  if (tracer == nullptr) return nullptr;
  std::unique_ptr<RequestTrace> trace = tracer->Begin(method_, HeadersOf(*call_.context));
  call_.context->AddInitialMetadata("traceparent", trace->traceparent());
  return trace;
}

void CallAccount::Opened() {
  resources_->calls.connections.CallOpened(slot_);
  resources_->calls.metrics.StreamOpened();
}

absl::Status CallAccount::EnterAgain() {
  ++streams_;  // refused ones leave too
  return resources_->streams.Enter(call_.caller->tenant);
}

absl::Status CallAccount::Enter() {
  RETURN_IF_ERROR(EnterAgain());
  absl::Status accepts = resources_->drain.CheckAccepts();
  if (accepts.ok()) return accepts;
  // A drain waits for the streams that entered before it, not for the calls that it refuses: a
  // flood of these would hold it up for as long as it lasts.
  --streams_;
  resources_->streams.Leave(call_.caller->tenant);
  return accepts;
}

void CallAccount::Ending(const absl::Status& status) {
  code_.store(static_cast<int>(status.code()), std::memory_order_relaxed);
  if (!call_.context->client_metadata().contains(kLoadReportAsked)) return;
  const Engine& engine = resources_->engine;
  const std::optional<double> predicted = engine.PredictTtftSeconds(call_.caller->tenant, 1);
  const int32_t rows = resources_->model.setup.config.max_num_seqs;
  call_.context->AddTrailingMetadata(
      kLoadReportTrailer, LoadReportOf(engine.Stats(), rows, predicted).SerializeAsString());
}

void CallAccount::Done() {
  resources_->calls.metrics.StreamClosed();
  resources_->calls.metrics.RpcFinished(method_, code(),
                                        static_cast<double>(SteadyNowNs() - opened_ns_) * 1e-9);
  resources_->calls.connections.CallClosed(slot_);
  for (; streams_ > 0; --streams_) resources_->streams.Leave(call_.caller->tenant);
}

uint64_t SeedOf(const GenerateResources& resources, const GenerationStream& stream) {
  const uint64_t x = resources.key ^ stream.id();
  return XXH3_64bits(&x, sizeof x);  // spreads them over all 64 bits
}

absl::Status Register(const GenerateResources* resources,
                      const std::shared_ptr<GenerationStream>& stream,
                      const std::string& request_id) {
  RETURN_IF_ERROR(stream->Claim(request_id));
  resources->stalls.Watch(stream);
  return absl::OkStatus();
}

void RegisterAnswer(const GenerateResources* resources,
                    const std::shared_ptr<GenerationStream>& stream,
                    const GenerationStream& first) {
  stream->Join(first);
  resources->stalls.Watch(stream);
}

std::vector<std::unique_ptr<Request>> AnswersOf(const Request& request, size_t count) {
  std::vector<std::unique_ptr<Request>> answers;
  for (size_t index = 0; index < count; ++index) {
    answers.push_back(std::make_unique<Request>(request));
    answers.back()->sampling.row.seed += index;
    if (index > 0) answers.back()->reading.prompt_top = -1;
  }
  return answers;
}

namespace {

// A request on its way to the engine, and the function that submits it there.
struct Opening {
  const GenerateResources* resources;
  std::shared_ptr<GenerationStream> stream;
  ParsedRequest parsed;
  SubmitRequest submit;
};
using OpeningRef = std::shared_ptr<Opening>;

void Submit(const OpeningRef& opening) {
  const GenerateResources* resources = opening->resources;
  const std::unique_ptr<Request>& request = opening->parsed.request;
  const auto send = [opening] {
    const OutputOptions& output = opening->parsed.output;
    std::unique_ptr<Request> complete = std::move(opening->parsed.request);
    if (opening->submit) return opening->submit(std::move(complete), output);
    std::vector<std::unique_ptr<Request>> one;
    one.push_back(std::move(complete));
    SubmitToEngine(opening->resources, {opening->stream}, std::move(one), output);
  };
  if (resources->archive == nullptr || !request->session_turn.has_value()) return send();
  resources->archive->BeforeTurn(opening->stream->tenant(), request->session_turn->session, send);
}

// Takes the compiled grammar of the request's output, or the reason why there is none.
absl::Status TakeGuide(const GenerateResources* resources, absl::StatusOr<GuideMaker::Guide> guide,
                       ParsedRequest& parsed) {
  if (absl::IsInvalidArgument(guide.status()) && parsed.structure.has_value()) {
    return InvalidField(parsed.structure->field, std::string(guide.status().message()));
  }
  RETURN_IF_ERROR(guide.status());
  Request& request = *parsed.request;
  request.guide = *std::move(guide);
  return CheckFirstToken(*request.guide, request.sampling, resources->model.setup.model.vocab_size);
}

// Whether masks choose the output's tokens.
bool IsConstrained(const ParsedRequest& parsed) {
  return parsed.structure.has_value() || parsed.output.answer.bounded();
}

// Submits the request once its grammar is compiled.
void Constrain(const OpeningRef& opening) {
  const auto done = [opening](absl::StatusOr<GuideMaker::Guide> guide) {
    const absl::Status status = TakeGuide(opening->resources, std::move(guide), opening->parsed);
    if (!status.ok()) return opening->stream->Refuse(status);
    Submit(opening);
  };
  const GenerateResources* const resources = opening->resources;
  const ParsedRequest& parsed = opening->parsed;
  const TenantId tenant = opening->stream->tenant();
  const AnswerPlan& answer = parsed.output.answer;
  const GrammarSource* source = parsed.structure ? &parsed.structure->source : nullptr;
  ReasoningPlan plan = {.begun = answer.start == ReasoningStart::kBegun,
                        .min_tokens = answer.min_tokens.value_or(0)};
  if (answer.max_tokens) plan.max_tokens = *answer.max_tokens;
  const absl::Status status = answer.reasons()
                                  ? resources->guides.MakeReasoned(tenant, plan, source, done)
                                  : resources->guides.Make(tenant, *source, done);
  if (!status.ok()) opening->stream->Refuse(status);
}

}  // namespace

void SubmitToEngine(const GenerateResources* resources,
                    const std::vector<std::shared_ptr<GenerationStream>>& streams,
                    std::vector<std::unique_ptr<Request>> requests, const OutputOptions& output) {
  std::vector<GenerationStream*> prepared;
  std::vector<std::unique_ptr<Request>> answers;
  for (size_t i = 0; i < streams.size(); ++i) {
    const absl::Status status = streams[i]->Prepare(*requests[i], output);
    if (!status.ok()) {
      streams[i]->Refuse(status);  // one that has ended stays as it is
      continue;
    }
    prepared.push_back(streams[i].get());
    answers.push_back(std::move(requests[i]));
  }
  if (prepared.empty()) return;
  int64_t predicted_ttft_ns = 0;
  const absl::Status status = resources->engine.Submit(std::move(answers), &predicted_ttft_ns);
  for (GenerationStream* stream : prepared) stream->Submitted(status, predicted_ttft_ns);
}

absl::Status SendToEngine(const GenerateResources* resources,
                          const std::shared_ptr<GenerationStream>& stream, ParsedRequest decoded,
                          SubmitRequest submit) {
  RETURN_IF_ERROR(CheckMayAsk(stream->caller(), decoded));
  if (decoded.structure.has_value()) {
    RETURN_IF_ERROR(CheckBesideStructure(*decoded.structure, decoded.request->sampling));
  }
  if (RequestTrace* trace = stream->trace()) {
    const bool chat = decoded.kind == ParsedRequest::Prompt::kChat;
    trace->Decoded(chat ? "chat" : "text_completion");
  }
  const auto opening =
      std::make_shared<Opening>(Opening{resources, stream, std::move(decoded), std::move(submit)});
  const ParsedRequest& parsed = opening->parsed;
  const auto open = [opening] {
    const StopMark::Scope until_call_ends(&opening->stream->stop_mark());
    const absl::Status status = TokenizePrompt(opening->resources->model, &opening->parsed);
    if (!status.ok()) return opening->stream->Refuse(status);
    if (IsConstrained(opening->parsed)) return Constrain(opening);
    Submit(opening);
  };
  if (parsed.kind != ParsedRequest::Prompt::kTokenIds) {
    return resources->calls.text_pool.Run(stream->tenant(), parsed.TextBytes(), open);
  }
  open();
  return absl::OkStatus();
}

}  // namespace quire
