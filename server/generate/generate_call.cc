// Reactors of generating calls. gRPC's rules that shape them: nothing may throw or block
// here; OnCancel must lead to Finish; OnDone comes last, once, and deletes.
#include "server/generate/generate_call.h"

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/generate/call_opening.h"
#include "server/generate/generation_stream.h"
#include "server/tracing/request_trace.h"

namespace quire {
namespace {

// The part that all calls share: the stream, its format, and the accounting around them.
class GenerateCall {
 public:
  GenerateCall(const GenerateResources* resources, const GenerateMethod* method,
               const IncomingCall& call, StreamOutlet* outlet, GenerationStream::Shape shape)
      : resources_(resources),
        context_(call.context),
        format_(method->make_format(resources->model)),
        account_(resources, method->name, call),
        stream_(std::make_shared<GenerationStream>(
            resources, outlet, shape, account_.StreamOrigin(), account_.BeginTrace())) {
    published_.store(stream_.get(), std::memory_order_release);
  }

  // The whole way to the engine. From here on the call may end at any time.
  void Start(const grpc::ByteBuffer& request) {
    const std::shared_ptr<GenerationStream> stream = stream_;
    account_.Opened();
    if (const absl::Status status = Open(request, stream); !status.ok()) stream->Refuse(status);
  }

  WireFormat& format() { return *format_; }
  const WireFormat& format() const { return *format_; }
  int64_t max_reply_bytes() const { return resources_->calls.options.max_reply_bytes; }

  // From the library's callbacks, which come on any of its threads.
  GenerationStream& stream() { return *published_.load(std::memory_order_acquire); }

  // Before the library ends the call: the code that Done reports.
  void Ending(const absl::Status& status) { account_.Ending(status); }
  // From OnDone.
  void Done() {
    stream().Closed();
    if (RequestTrace* trace = stream().trace()) trace->Closed(account_.code(), SteadyNowNs());
    account_.Done();
  }

 private:
  absl::Status Open(const grpc::ByteBuffer& bytes,
                    const std::shared_ptr<GenerationStream>& stream) {
    RETURN_IF_ERROR(account_.Enter());
    ASSIGN_OR_RETURN(ParsedRequest decoded, format_->Decode(*context_, bytes, resources_->model,
                                                            SeedOf(*resources_, *stream)));
    if (format_->one_reply()) stream->SendAs(GenerationStream::Shape::kUnary);
    RETURN_IF_ERROR(Register(resources_, stream, decoded.request_id));
    return SendToEngine(resources_, stream, std::move(decoded));
  }

  const GenerateResources* const resources_;
  grpc::CallbackServerContext* const context_;
  const std::unique_ptr<WireFormat> format_;
  CallAccount account_;
  const std::shared_ptr<GenerationStream> stream_;
  // Publishes stream_ from the constructing thread to the callbacks' threads. The library orders
  // them too, but neither its documentation nor the thread sanitizer shows that.
  std::atomic<GenerationStream*> published_{nullptr};
};

class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, StreamOutlet {
 public:
  StreamReactor(const GenerateResources* resources, const GenerateMethod* method,
                const IncomingCall& call)
      : context_(call.context),
        call_(resources, method, call, this, GenerationStream::Shape::kStream) {}

  void Start(const grpc::ByteBuffer& request) { call_.Start(request); }

  void OnWriteDone(bool ok) override {
    writing_.store(false, std::memory_order_relaxed);
    call_.stream().WriteDone(ok);
  }
  void OnCancel() override { call_.stream().Cancelled(); }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  void WriteAccepted(const AcceptedFrame& accepted) override {
    accepted_ = true;
    Write(call_.format().Accepted(accepted));
  }
  void WriteTokens(const OutputDelta& delta, const OutputOptions& output) override {
    Write(call_.format().Tokens(delta, output));
  }
  void Write(const std::optional<std::string>& frame) {
    if (!frame.has_value()) return call_.stream().WriteDone(true);
    buffer_ = ToByteBuffer(frame->data(), frame->size());
    writing_.store(true, std::memory_order_relaxed);
    StartWrite(&buffer_);
  }
  void WriteEnd(const EndFrame& end) override { EndWith(call_.format().End(end)); }
  void Fail(const absl::Status& failure) override {
    const absl::Status status = call_.format().Named(failure);
    // No message can follow a write that is stuck: then the status alone ends the call.
    if (!writing_.load(std::memory_order_relaxed)) {
      const std::optional<std::string> frame = call_.format().Failure(status, accepted_);
      if (frame.has_value()) return EndWith(frame);
    }
    call_.Ending(status);
    Finish(ToGrpcStatus(status));
  }
  void EndWith(const std::optional<std::string>& frame) {
    call_.Ending(absl::OkStatus());
    if (!frame.has_value()) return Finish(grpc::Status::OK);
    buffer_ = ToByteBuffer(frame->data(), frame->size());
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void Reset() override { context_->TryCancel(); }
  absl::Status CheckSize(int64_t bytes) const override {
    return call_.format().CheckSize(bytes, call_.max_reply_bytes());
  }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer buffer_;  // of the write in flight
  bool accepted_ = false;
  std::atomic<bool> writing_{false};
  GenerateCall call_;
};

class ReplyReactor final : public grpc::ServerUnaryReactor, StreamOutlet {
 public:
  ReplyReactor(const GenerateResources* resources, const GenerateMethod* method,
               const IncomingCall& call, grpc::ByteBuffer* response)
      : context_(call.context),
        response_(response),
        call_(resources, method, call, this, GenerationStream::Shape::kUnary) {}

  void Start(const grpc::ByteBuffer& request) { call_.Start(request); }

  void OnCancel() override { call_.stream().Cancelled(); }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  // The reply is the only frame.
  void WriteAccepted(const AcceptedFrame&) override {}
  void WriteTokens(const OutputDelta&, const OutputOptions&) override {}
  void WriteEnd(const EndFrame& end) override { Reply(call_.format().End(end)); }
  void Fail(const absl::Status& failure) override {
    const absl::Status status = call_.format().Named(failure);
    const std::optional<std::string> frame = call_.format().Failure(status, /*accepted=*/false);
    if (frame.has_value()) return Reply(frame);
    call_.Ending(status);
    Finish(ToGrpcStatus(status));
  }
  void Reply(const std::optional<std::string>& reply) {
    if (reply.has_value()) *response_ = ToByteBuffer(reply->data(), reply->size());
    call_.Ending(absl::OkStatus());
    Finish(grpc::Status::OK);
  }
  void Reset() override { context_->TryCancel(); }
  absl::Status CheckSize(int64_t bytes) const override {
    return call_.format().CheckSize(bytes, call_.max_reply_bytes());
  }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  GenerateCall call_;
};

}  // namespace

RawService::ServerStreaming StreamingGenerate(const GenerateResources* resources,
                                              GenerateMethod method) {
  const auto kept = std::make_shared<const GenerateMethod>(std::move(method));
  return [resources, kept](const IncomingCall& call, const grpc::ByteBuffer* request) {
    auto* reactor = new StreamReactor(resources, kept.get(), call);
    reactor->Start(*request);
    return reactor;
  };
}

RawService::Unary UnaryGenerate(const GenerateResources* resources, GenerateMethod method) {
  const auto kept = std::make_shared<const GenerateMethod>(std::move(method));
  return [resources, kept](const IncomingCall& call, const grpc::ByteBuffer* request,
                           grpc::ByteBuffer* response) {
    auto* reactor = new ReplyReactor(resources, kept.get(), call, response);
    reactor->Start(*request);
    return reactor;
  };
}

}  // namespace quire
