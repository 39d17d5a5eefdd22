// Reactors of the two generating calls. gRPC's rules that shape them: nothing may throw or block
// here; OnCancel must lead to Finish; OnDone comes last, once, and deletes.
#include "server/generate/generate_call.h"

#define XXH_INLINE_ALL
#include <grpc/support/time.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/call/turn_archive.h"
#include "server/call/wire_check.h"
#include "server/generate/generate_frames.h"
#include "server/generate/generation_stream.h"
#include "server/generate/request_codec.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/metrics/metrics.h"
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

// Spreads the seeds of requests that bring none over all 64 bits.
uint64_t MixSeed(uint64_t x) { return XXH3_64bits(&x, sizeof x); }

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

// Null without a tracer. The client finds the server's span by the header that the first bytes of
// the answer carry.
std::unique_ptr<RequestTrace> BeginTrace(Tracer* tracer, const char* method,
                                         grpc::CallbackServerContext* context) {
  if (tracer == nullptr) return nullptr;
  std::unique_ptr<RequestTrace> trace = tracer->Begin(method, HeadersOf(*context));
  context->AddInitialMetadata("traceparent", trace->traceparent());
  return trace;
}

// The part that both calls share: the stream, and the accounting around it.
class GenerateCall {
 public:
  GenerateCall(const GenerateResources* resources, grpc::CallbackServerContext* context,
               StreamOutlet* outlet, GenerationStream::Shape shape)
      : resources_(resources),
        method_(shape == GenerationStream::Shape::kStream ? "Generate" : "GenerateUnary"),
        opened_ns_(SteadyNowNs()),
        slot_(resources->calls.connections.SlotOf(context->peer())),
        stream_(std::make_shared<GenerationStream>(
            resources, outlet, shape,
            GenerationStream::Caller{
                resources->calls.options.identity(*context), slot_,
                DeadlineNs(*context, resources->calls.options.default_deadline_seconds)},
            BeginTrace(resources->calls.tracer, method_, context))) {
    published_.store(stream_.get(), std::memory_order_release);
  }

  // The whole way to the engine. From here on the call may end at any time.
  void Start(const grpc::ByteBuffer& request) {
    const std::shared_ptr<GenerationStream> stream = stream_;
    resources_->calls.connections.CallOpened(slot_);
    resources_->calls.metrics.StreamOpened();
    if (const absl::Status status = Open(request, stream); !status.ok()) stream->Refuse(status);
  }

  const std::string& model_name() const { return resources_->model.name; }
  int64_t max_reply_bytes() const { return resources_->calls.options.max_reply_bytes; }

  // From the library's callbacks, which come on any of its threads.
  GenerationStream& stream() { return *published_.load(std::memory_order_acquire); }

  // Before the library ends the call: the code that Done reports.
  void Ending(const absl::Status& status) {
    code_.store(static_cast<int>(status.code()), std::memory_order_relaxed);
  }
  // From OnDone.
  void Done() {
    const int64_t now_ns = SteadyNowNs();
    const int code = code_.load(std::memory_order_relaxed);
    stream().Closed();
    if (RequestTrace* trace = stream().trace()) trace->Closed(code, now_ns);
    resources_->calls.metrics.StreamClosed();
    resources_->calls.metrics.RpcFinished(method_, code,
                                          static_cast<double>(now_ns - opened_ns_) * 1e-9);
    resources_->calls.connections.CallClosed(slot_);
    resources_->streams.Leave();
  }

 private:
  absl::Status Open(const grpc::ByteBuffer& bytes,
                    const std::shared_ptr<GenerationStream>& stream) {
    RETURN_IF_ERROR(resources_->streams.Enter());
    RETURN_IF_ERROR(resources_->drain.CheckAccepts());
    v1::GenerateRequest request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    const uint64_t seed = MixSeed(resources_->key ^ stream->id());
    ASSIGN_OR_RETURN(ParsedRequest decoded, DecodeGenerate(request, resources_->model, seed));
    if (RequestTrace* trace = stream->trace()) {
      const bool chat = decoded.kind == ParsedRequest::Prompt::kChat;
      trace->Decoded(chat ? "chat" : "text_completion");
    }
    RETURN_IF_ERROR(stream->Claim(decoded.request_id));
    resources_->stalls.Watch(stream);
    const auto parsed = std::make_shared<ParsedRequest>(std::move(decoded));
    const auto submit = [stream, parsed, &model = resources_->model,
                         archive = resources_->archive] {
      const absl::Status status = TokenizePrompt(model, parsed.get());
      if (!status.ok()) return stream->Refuse(status);
      const std::unique_ptr<Request>& request = parsed->request;
      const auto send = [stream, parsed] {
        stream->Submit(std::move(parsed->request), parsed->output);
      };
      if (archive == nullptr || !request->session_turn.has_value()) return send();
      archive->BeforeTurn(stream->tenant(), request->session_turn->session, send);
    };
    if (parsed->kind != ParsedRequest::Prompt::kTokenIds) {
      return resources_->calls.text_pool.Run(parsed->TextBytes(), submit);
    }
    submit();
    return absl::OkStatus();
  }

  const GenerateResources* const resources_;
  const char* const method_;
  const int64_t opened_ns_;
  const int slot_;  // of the peer
  const std::shared_ptr<GenerationStream> stream_;
  std::atomic<int> code_{0};
  // Publishes stream_ from the constructing thread to the callbacks' threads. The library orders
  // them too, but neither its documentation nor the thread sanitizer shows that.
  std::atomic<GenerationStream*> published_{nullptr};
};

class GenerateReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, StreamOutlet {
 public:
  GenerateReactor(const GenerateResources* resources, grpc::CallbackServerContext* context)
      : context_(context), call_(resources, context, this, GenerationStream::Shape::kStream) {}

  void Start(const grpc::ByteBuffer& request) { call_.Start(request); }

  void OnWriteDone(bool ok) override { call_.stream().WriteDone(ok); }
  void OnCancel() override { call_.stream().Cancelled(); }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  void WriteAccepted(const AcceptedFrame& accepted) override {
    Write(EncodeAccepted(call_.model_name(), accepted));
  }
  void WriteTokens(const OutputDelta& delta, const OutputOptions& output) override {
    Write(EncodeTokens(delta, output));
  }
  void Write(const std::string& frame) {
    buffer_ = ToByteBuffer(frame.data(), frame.size());
    StartWrite(&buffer_);
  }
  void WriteEnd(const EndFrame& end) override {
    const std::string frame = EncodeFinished(end);
    buffer_ = ToByteBuffer(frame.data(), frame.size());
    call_.Ending(absl::OkStatus());
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void Fail(const absl::Status& status) override {
    call_.Ending(status);
    Finish(ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }
  absl::Status CheckSize(int64_t) const override { return absl::OkStatus(); }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer buffer_;  // of the write in flight
  GenerateCall call_;
};

class UnaryReactor final : public grpc::ServerUnaryReactor, StreamOutlet {
 public:
  UnaryReactor(const GenerateResources* resources, grpc::CallbackServerContext* context,
               grpc::ByteBuffer* response)
      : context_(context),
        response_(response),
        call_(resources, context, this, GenerationStream::Shape::kUnary) {}

  void Start(const grpc::ByteBuffer& request) { call_.Start(request); }

  void OnCancel() override { call_.stream().Cancelled(); }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  // A unary call has no frames but the last.
  void WriteAccepted(const AcceptedFrame&) override {}
  void WriteTokens(const OutputDelta&, const OutputOptions&) override {}
  void WriteEnd(const EndFrame& end) override {
    const std::string result = EncodeResult(call_.model_name(), end);
    *response_ = ToByteBuffer(result.data(), result.size());
    call_.Ending(absl::OkStatus());
    Finish(grpc::Status::OK);
  }
  void Fail(const absl::Status& status) override {
    call_.Ending(status);
    Finish(ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }
  absl::Status CheckSize(int64_t bytes) const override {
    return CheckResultSize(bytes, call_.max_reply_bytes());
  }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  GenerateCall call_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const GenerateResources* resources,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) {
  auto* reactor = new GenerateReactor(resources, context);
  reactor->Start(*request);
  return reactor;
}

grpc::ServerUnaryReactor* StartGenerateUnary(const GenerateResources* resources,
                                             grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  auto* reactor = new UnaryReactor(resources, context, response);
  reactor->Start(*request);
  return reactor;
}

}  // namespace quire
