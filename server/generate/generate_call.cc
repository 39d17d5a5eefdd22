// Reactors of the two generating calls. gRPC's rules that shape them: nothing may throw or block
// here; OnCancel must lead to Finish; OnDone comes last, once, and deletes.
#include "server/generate/generate_call.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/call/wire_check.h"
#include "server/generate/generation_stream.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"

namespace quire {
namespace {

// Beyond it a deadline is none: thirty years, within what 64 bits of nanoseconds hold.
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

// splitmix64: seeds of requests that bring none are spread over all 64 bits.
uint64_t MixSeed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// What both calls share: the stream, and the accounting around it.
class GenerateCall {
 public:
  GenerateCall(StreamHost* host, const grpc::CallbackServerContext& context, StreamOutlet* outlet,
               GenerationStream::Shape shape)
      : host_(host),
        method_(shape == GenerationStream::Shape::kStream ? "Generate" : "GenerateUnary"),
        opened_ns_(SteadyNowNs()),
        port_(ConnectionTable::PortOf(context.peer())),
        stream_(std::make_shared<GenerationStream>(
            host, outlet, shape,
            GenerationStream::Caller{
                host->options.identity(context), port_,
                DeadlineNs(context, host->options.default_deadline_seconds)})) {
    published_.store(stream_.get(), std::memory_order_release);
  }

  // The whole way to the engine. From here on the call may end at any time.
  void Start(const grpc::ByteBuffer& request) {
    const std::shared_ptr<GenerationStream> stream = stream_;
    host_->connections->CallOpened(port_);
    host_->metrics->StreamOpened();
    if (const absl::Status status = Open(request, stream); !status.ok()) stream->Refuse(status);
  }

  // From the library's callbacks, which come on any of its threads.
  GenerationStream& stream() { return *published_.load(std::memory_order_acquire); }

  // From OnDone.
  void Done() {
    stream().Closed();
    host_->metrics->StreamClosed();
    host_->metrics->RpcFinished(method_, stream().final_code(),
                                static_cast<double>(SteadyNowNs() - opened_ns_) * 1e-9);
    host_->connections->CallClosed(port_);
    host_->table->Leave();
  }

 private:
  absl::Status Open(const grpc::ByteBuffer& bytes,
                    const std::shared_ptr<GenerationStream>& stream) {
    RETURN_IF_ERROR(host_->table->Enter());
    if (host_->draining.load(std::memory_order_relaxed)) {
      return Refusal(absl::StatusCode::kUnavailable, "DRAINING",
                     "the server is draining; retry elsewhere", 1);
    }
    v1::GenerateRequest request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    const uint64_t seed = MixSeed(host_->seed_key.load(std::memory_order_relaxed) ^ stream->id());
    ASSIGN_OR_RETURN(GenerationAsk ask, DecodeGenerate(request, *host_->model, seed));
    const bool tokenised = ask.kind == GenerationAsk::Prompt::kTokenIds;
    const size_t text_bytes = ask.TextBytes();
    RETURN_IF_ERROR(stream->Take(std::move(ask)));
    host_->stalls->Watch(stream);
    if (!tokenised) return host_->text_pool->Run(text_bytes, [stream] { stream->Submit(); });
    stream->Submit();
    return absl::OkStatus();
  }

  StreamHost* const host_;
  const char* const method_;
  const int64_t opened_ns_;
  const int port_;  // of the peer
  const std::shared_ptr<GenerationStream> stream_;
  // stream_, handed from the constructing thread to the callbacks' by an order of our own: that the
  // library orders them too can be seen neither in its documentation nor by the thread sanitizer.
  std::atomic<GenerationStream*> published_{nullptr};
};

class GenerateReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, StreamOutlet {
 public:
  GenerateReactor(StreamHost* host, grpc::CallbackServerContext* context)
      : context_(context), call_(host, *context, this, GenerationStream::Shape::kStream) {}

  void Start(const grpc::ByteBuffer& request) { call_.Start(request); }

  void OnWriteDone(bool ok) override { call_.stream().WriteDone(ok); }
  void OnCancel() override { call_.stream().Cancelled(); }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  void Write(std::string_view frame) override {
    buffer_ = ToByteBuffer(frame.data(), frame.size());
    StartWrite(&buffer_);
  }
  void WriteLast(std::string_view frame) override {
    buffer_ = ToByteBuffer(frame.data(), frame.size());
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  // Qualified, because both bases have a Finish.
  void Finish(const absl::Status& status) override {
    grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer buffer_;  // of the write in flight
  GenerateCall call_;
};

class UnaryReactor final : public grpc::ServerUnaryReactor, StreamOutlet {
 public:
  UnaryReactor(StreamHost* host, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : context_(context),
        response_(response),
        call_(host, *context, this, GenerationStream::Shape::kUnary) {}

  void Start(const grpc::ByteBuffer& request) { call_.Start(request); }

  void OnCancel() override { call_.stream().Cancelled(); }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  void Write(std::string_view) override {}  // a unary call has no frames but the last
  void WriteLast(std::string_view frame) override {
    *response_ = ToByteBuffer(frame.data(), frame.size());
    grpc::ServerUnaryReactor::Finish(grpc::Status::OK);
  }
  void Finish(const absl::Status& status) override {
    grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  GenerateCall call_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(StreamHost* host,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) {
  auto* reactor = new GenerateReactor(host, context);
  reactor->Start(*request);
  return reactor;
}

grpc::ServerUnaryReactor* StartGenerateUnary(StreamHost* host, grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  auto* reactor = new UnaryReactor(host, context, response);
  reactor->Start(*request);
  return reactor;
}

}  // namespace quire
