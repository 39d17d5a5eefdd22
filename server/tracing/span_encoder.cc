// Names of spans and attributes. Those of the semantic conventions (rpc.*, gen_ai.*, error.type)
// are theirs; the ones they lack begin with "quire.". docs/tracing.md lists all.
#include "server/tracing/span_encoder.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "engine/values/session.h"
#include "opentelemetry/trace_service.pb.h"

namespace quire {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;
using Attributes = google::protobuf::RepeatedPtrField<otlp::KeyValue>;
using Kind = RequestStage::Kind;

constexpr char kService[] = "quire.v1.Inference";
// Bit 8: bit 9 is known. Bit 9: the parent is in another process.
constexpr uint32_t kSampledFlag = 1, kRemoteKnown = 1 << 8, kRemote = 1 << 9;

otlp::AnyValue* Add(Attributes* attributes, const char* key) {
  otlp::KeyValue* pair = attributes->Add();
  pair->set_key(key);
  return pair->mutable_value();
}
void Add(Attributes* attributes, const char* key, const std::string& value) {
  Add(attributes, key)->set_string_value(value);
}
void Add(Attributes* attributes, const char* key, int64_t value) {
  Add(attributes, key)->set_int_value(value);
}

template <size_t N>
std::string Bytes(const std::array<uint8_t, N>& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

bool IsZero(const SpanId& id) { return id == SpanId{}; }

// The codes that the convention counts as the server's own failure; others are the caller's affair.
bool IsServerError(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss: return true;
    default: return false;
  }
}

// The part of a span that all have: ids, times, flags.
otlp::Span* AddSpan(const RequestRecord& record, int64_t begin_ns, int64_t end_ns,
                    otlp::ScopeSpans* out) {
  otlp::Span* span = out->add_spans();
  span->set_trace_id(Bytes(record.context.trace_id));
  span->set_trace_state(record.trace_state);
  span->set_start_time_unix_nano(static_cast<uint64_t>(begin_ns));
  span->set_end_time_unix_nano(static_cast<uint64_t>(end_ns));
  span->set_flags(kSampledFlag | kRemoteKnown);
  return span;
}

void AddResult(const RequestRecord& record, Attributes* attributes) {
  const FinishEvent& finish = *record.finish;
  Add(attributes, "gen_ai.usage.input_tokens", int64_t{finish.usage.prompt_tokens});
  Add(attributes, "gen_ai.usage.cache_read.input_tokens", int64_t{finish.usage.cached_tokens});
  Add(attributes, "gen_ai.usage.output_tokens", int64_t{finish.usage.completion_tokens});
  Add(attributes, "gen_ai.response.finish_reasons")
      ->mutable_array_value()
      ->add_values()
      ->set_string_value(FieldWord(finish.reason));
  Add(attributes, "quire.finish_reason", std::string(Name(finish.reason)));
}

void AddRequest(const RequestRecord& record, Attributes* attributes) {
  Add(attributes, "gen_ai.response.id", record.request_id);
  Add(attributes, "gen_ai.request.max_tokens", int64_t{record.max_tokens});
  Add(attributes, "gen_ai.request.temperature")->set_double_value(double{record.temperature});
  Add(attributes, "gen_ai.request.top_p")->set_double_value(double{record.top_p});
  if (record.top_k > 0) Add(attributes, "gen_ai.request.top_k", int64_t{record.top_k});
  Add(attributes, "quire.session_turn")->set_bool_value(record.is_turn);
}

void AddEvents(const FinishEvent& finish, int64_t unix_offset_ns, otlp::Span* span) {
  const auto add = [&](const char* name, int64_t at_ns) {
    otlp::Span::Event* event = span->add_events();
    event->set_name(name);
    event->set_time_unix_nano(static_cast<uint64_t>(unix_offset_ns + at_ns));
    return event;
  };
  if (finish.timings.first_token_ns != 0) add("quire.first_token", finish.timings.first_token_ns);
  if (finish.timings.preempted_ns != 0) {
    otlp::Span::Event* event = add("quire.preempted", finish.timings.preempted_ns);
    Add(event->mutable_attributes(), "quire.preemptions", int64_t{finish.usage.preemptions});
  }
}

void AddStageFacts(const RequestStage& stage, const RequestRecord& record, Attributes* attributes) {
  if (!record.finish.has_value()) return;
  const Residency& kv = record.finish->residency;
  const Usage& usage = record.finish->usage;
  if (stage.kind == Kind::kRestore) {
    Add(attributes, "quire.kv.host_tokens", int64_t{kv.host_tokens});
    Add(attributes, "quire.kv.recomputed_tokens", int64_t{kv.recomputed_tokens});
    Add(attributes, "quire.kv.residency", std::string(Name(kv.outcome)));
  } else if (stage.kind == Kind::kPrefill) {
    const int32_t computed = std::max(0, usage.prompt_tokens - usage.cached_tokens);
    Add(attributes, "quire.prefill.computed_tokens", int64_t{computed});
  }
}

}  // namespace

void SpanEncoder::Append(const RequestRecord& record, int64_t unix_offset_ns,
                         otlp::ScopeSpans* out) const {
  otlp::Span* server =
      AddSpan(record, unix_offset_ns + record.arrived_ns, unix_offset_ns + EndOf(record), out);
  const std::string server_id = Bytes(record.context.span_id);
  server->set_span_id(server_id);
  if (!IsZero(record.parent_id)) {
    server->set_parent_span_id(Bytes(record.parent_id));
    server->set_flags(kSampledFlag | kRemoteKnown | kRemote);
  }
  server->set_name(std::string(kService) + "/" + record.method);
  server->set_kind(otlp::Span::SPAN_KIND_SERVER);
  Attributes* attributes = server->mutable_attributes();
  Add(attributes, "rpc.system", "grpc");
  Add(attributes, "rpc.service", kService);
  Add(attributes, "rpc.method", std::string(record.method));
  Add(attributes, "rpc.grpc.status_code", int64_t{record.code});
  Add(attributes, "gen_ai.provider.name", "quire");
  Add(attributes, "gen_ai.response.model", model_);
  if (*record.operation != 0) {
    Add(attributes, "gen_ai.operation.name", std::string(record.operation));
  }
  if (record.submitted_ns != 0) AddRequest(record, attributes);
  if (record.finish.has_value()) {
    AddResult(record, attributes);
    AddEvents(*record.finish, unix_offset_ns, server);
  }
  const auto code = static_cast<absl::StatusCode>(record.code);
  if (IsServerError(code)) {
    Add(attributes, "error.type", absl::StatusCodeToString(code));
    server->mutable_status()->set_code(otlp::Status::STATUS_CODE_ERROR);
  }
  std::string queue_id;
  for (const RequestStage& stage : StagesOf(record)) {
    otlp::Span* span =
        AddSpan(record, unix_offset_ns + stage.begin_ns, unix_offset_ns + stage.end_ns, out);
    span->set_span_id(Bytes(NewSpanId()));
    if (stage.kind == Kind::kQueue) queue_id = span->span_id();
    span->set_parent_span_id(stage.within_queue ? queue_id : server_id);
    span->set_name(Name(stage.kind));
    span->set_kind(otlp::Span::SPAN_KIND_INTERNAL);
    AddStageFacts(stage, record, span->mutable_attributes());
  }
}

}  // namespace quire
