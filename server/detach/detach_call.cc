// A reactor that reads a kept answer. It holds no state of the stream: what a lost connection must
// not lose is in the answer.
#include "server/detach/detach_call.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/connection_table.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/detach/kept_answer.h"
#include "server/generate/call_opening.h"
#include "server/generate/quire_format.h"
#include "server/generate/request_codec.h"
#include "server/generate/stream_table.h"
#include "server/tracing/request_trace.h"

namespace quire {
namespace {

absl::Status CheckSeconds(double seconds, double most) {
  if (seconds <= most) return absl::OkStatus();
  if (most == 0) {
    return InvalidField("detach_seconds",
                        "must be 0: this server lets no request outlive its call "
                        "(--max-detach-seconds)");
  }
  return InvalidField("detach_seconds", absl::StrCat("must be at most ", most,
                                                     ", the server's --max-detach-seconds"));
}

class ReadReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, StreamOutlet {
 public:
  ReadReactor(const GenerateResources* resources, KeptAnswers* kept, const char* method,
              const IncomingCall& call)
      : resources_(*resources),
        kept_(*kept),
        context_(call.context),
        tenant_(call.caller->tenant),
        format_(GenerateFormat(resources->model)),
        account_(resources, method, call),
        reader_(std::make_shared<AttachedReader>(
            static_cast<StreamOutlet*>(this),
            resources->calls.connections.SlotOf(call.context->peer()))) {}

  // From here on the call may end at any time, but not before the library has the reactor.
  void Generate(const grpc::ByteBuffer& bytes) {
    account_.Opened();
    GenerationStream::Origin origin = account_.StreamOrigin();
    origin.slot = 0;  // the stream outlives its first connection
    const auto answer = std::make_shared<KeptAnswer>(&resources_, &kept_);
    stream_ = std::make_shared<GenerationStream>(
        &resources_, answer.get(), GenerationStream::Shape::kStream, origin, account_.BeginTrace());
    stream_->KeepIn(answer);
    answer->Begin(stream_, reader_);
    Use(answer);
    if (const absl::Status status = Open(bytes); !status.ok()) stream_->Refuse(status);
  }

  void Attach(const grpc::ByteBuffer& bytes) {
    account_.Opened();
    if (const absl::Status status = OpenAgain(bytes); !status.ok()) Fail(status);
  }

  void OnWriteDone(bool ok) override {
    writing_.store(false, std::memory_order_relaxed);
    answer().WriteDone(reader_, ok);
  }
  void OnCancel() override {
    cancelled_.store(true, std::memory_order_relaxed);
    if (KeptAnswer* answer = published_.load(std::memory_order_acquire)) answer->Leave(reader_);
  }
  void OnDone() override {
    reader_->Closed();
    const bool whole = read_all_ && !cancelled_.load(std::memory_order_relaxed);
    if (published_.load(std::memory_order_acquire) != nullptr && answer().Done(reader_, whole)) {
      account_.HandOver();
    }
    RequestTrace* const trace = stream_ == nullptr ? nullptr : stream_->trace();
    if (trace != nullptr) trace->Closed(account_.code(), SteadyNowNs());
    account_.Done();
    delete this;
  }

 private:
  absl::Status Open(const grpc::ByteBuffer& bytes) {
    RETURN_IF_ERROR(account_.Enter());
    ASSIGN_OR_RETURN(ParsedRequest parsed, format_->Decode(*context_, bytes, resources_.model,
                                                           SeedOf(resources_, *stream_)));
    const double seconds = parsed.output.detach_seconds;
    RETURN_IF_ERROR(CheckSeconds(seconds, resources_.calls.options.max_detach_seconds));
    RETURN_IF_ERROR(kept_.CheckRoom(tenant_));
    RETURN_IF_ERROR(Register(&resources_, stream_, parsed.request_id));
    answer_->Admit(seconds);
    return SendToEngine(&resources_, stream_, std::move(parsed));
  }

  absl::Status OpenAgain(const grpc::ByteBuffer& bytes) {
    using Result = DetachMetrics::Attach;
    RETURN_IF_ERROR(account_.EnterAgain());
    v1::AttachRequest request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    if (request.request_id().empty()) {
      return InvalidField("request_id", "missing; name the request to go on with");
    }
    RETURN_IF_ERROR(CheckName("request_id", request.request_id()));
    const std::shared_ptr<KeptAnswer> found = kept_.Find(tenant_, request.request_id());
    const bool live = !resources_.streams.Find({request.request_id()}, tenant_).empty();
    if (found == nullptr && live) {
      kept_.metrics().Attached(Result::kNotDetachable);
      return Refusal(absl::StatusCode::kFailedPrecondition, "NOT_DETACHABLE",
                     "request_id: this request ends with its call; send detach_seconds with it");
    }
    if (found == nullptr) {
      kept_.metrics().Attached(Result::kNotFound);
      return KeptAnswer::NotFound();
    }
    bool took_over = false;
    const absl::Status status = found->Attach(reader_, request.after_tokens(), &took_over);
    if (status.ok()) Use(found);  // the library calls nothing back before it has the reactor
    kept_.metrics().Attached(absl::IsOutOfRange(status) ? Result::kOutOfRange
                             : !status.ok()             ? Result::kNotFound
                             : took_over                ? Result::kTookOver
                                                        : Result::kResumed);
    return status;
  }

  void Use(std::shared_ptr<KeptAnswer> answer) {
    answer_ = std::move(answer);
    published_.store(answer_.get(), std::memory_order_release);
  }
  // From the library's callbacks, which come on any of its threads.
  KeptAnswer& answer() { return *published_.load(std::memory_order_acquire); }

  void WriteAccepted(const AcceptedFrame& accepted) override { Write(format_->Accepted(accepted)); }
  void WriteTokens(const OutputDelta& delta, const OutputOptions& output) override {
    Write(format_->Tokens(delta, output));
  }
  void Write(const std::optional<std::string>& frame) {
    buffer_ = ToByteBuffer(frame->data(), frame->size());
    writing_.store(true, std::memory_order_relaxed);
    StartWrite(&buffer_);
  }
  void WriteEnd(const EndFrame& end) override {
    read_all_ = true;
    const std::string frame = format_->End(end).value_or("");
    buffer_ = ToByteBuffer(frame.data(), frame.size());
    account_.Ending(absl::OkStatus());
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void Fail(const absl::Status& status) override {
    read_all_ = !writing_.load(std::memory_order_relaxed);
    account_.Ending(status);
    Finish(ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }
  absl::Status CheckSize(int64_t) const override { return absl::OkStatus(); }

  const GenerateResources& resources_;
  KeptAnswers& kept_;
  grpc::CallbackServerContext* const context_;
  const TenantId tenant_;
  const std::unique_ptr<WireFormat> format_;
  CallAccount account_;
  const std::shared_ptr<AttachedReader> reader_;
  std::shared_ptr<KeptAnswer> answer_;        // null: the call was refused
  std::shared_ptr<GenerationStream> stream_;  // null in Attach
  // Publishes answer_ from the constructing thread to the callbacks' threads.
  std::atomic<KeptAnswer*> published_{nullptr};
  grpc::ByteBuffer buffer_;  // of the write in flight
  std::atomic<bool> writing_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> read_all_{false};  // all that came before the end was written
};

// Whether a GenerateRequest has detach_seconds that are not 0. Looks at the numbers of its fields
// only: bytes that are no such message are for the usual way to refuse.
bool AsksToDetach(const grpc::ByteBuffer& request) {
  using google::protobuf::internal::WireFormatLite;
  grpc::ByteBuffer bytes = request;  // shares the slices
  grpc::ProtoBufferReader reader(&bytes);
  google::protobuf::io::CodedInputStream in(&reader);
  uint64_t seconds = 0;  // the bits; those of 0 are 0, and those of -0 ask for nothing either
  while (const uint32_t tag = in.ReadTag()) {
    if (tag == WireFormatLite::MakeTag(v1::GenerateRequest::kDetachSecondsFieldNumber,
                                       WireFormatLite::WIRETYPE_FIXED64)) {
      if (!in.ReadLittleEndian64(&seconds)) return false;
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return false;
    }
  }
  return (seconds << 1) != 0;
}

}  // namespace

RawService::ServerStreaming DetachableGenerate(const GenerateResources* resources,
                                               KeptAnswers* kept,
                                               RawService::ServerStreaming plain) {
  return [resources, kept, plain = std::move(plain)](
             const IncomingCall& call,
             const grpc::ByteBuffer* request) -> grpc::ServerWriteReactor<grpc::ByteBuffer>* {
    if (!AsksToDetach(*request)) return plain(call, request);
    auto* reactor = new ReadReactor(resources, kept, "Generate", call);
    reactor->Generate(*request);
    return reactor;
  };
}

RawService::ServerStreaming AttachCall(const GenerateResources* resources, KeptAnswers* kept) {
  return [resources, kept](const IncomingCall& call, const grpc::ByteBuffer* request) {
    auto* reactor = new ReadReactor(resources, kept, "Attach", call);
    reactor->Attach(*request);
    return reactor;
  };
}

}  // namespace quire
