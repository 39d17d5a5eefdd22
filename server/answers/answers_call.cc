// Two reactors around the streams of a request's answers.
#include "server/answers/answers_call.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/answers/answer_streams.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/generate/call_opening.h"
#include "server/generate/request_codec.h"
#include "server/tracing/request_trace.h"
#include "server/wire/shared_writer.h"

namespace quire {
namespace {

// The part that both reactors share.
class AnswersCall {
 public:
  AnswersCall(const GenerateResources* resources, const char* method, const IncomingCall& call,
              SharedWriter::Call* end, bool one_reply)
      : resources_(resources),
        account_(resources, method, call),
        writer_(end),
        streams_(resources, &writer_, account_.StreamOrigin(), one_reply, account_.BeginTrace()) {}

  // From here on the call may end at any time.
  void Start(const grpc::ByteBuffer& bytes) {
    account_.Opened();
    const std::shared_ptr<GenerationStream> first = streams_.first();
    absl::StatusOr<ParsedRequest> decoded = Open(bytes);
    if (!decoded.ok()) return first->Refuse(decoded.status());
    streams_.Send(*std::move(decoded));
  }

  SharedWriter& writer() { return writer_; }
  // Before the library ends the call.
  void Ending(const absl::Status& status) { account_.Ending(status); }
  // From OnDone.
  void Done() {
    writer_.Done();
    if (RequestTrace* trace = streams_.first()->trace()) {
      trace->Closed(account_.code(), SteadyNowNs());
    }
    account_.Done();
  }

 private:
  // Everything that can refuse the request before its prompt is known. All streams are registered
  // then.
  absl::StatusOr<ParsedRequest> Open(const grpc::ByteBuffer& bytes) {
    RETURN_IF_ERROR(account_.Enter());
    v1::GenerateRequest request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    ASSIGN_OR_RETURN(ParsedRequest parsed, DecodeGenerate(request, resources_->model,
                                                          SeedOf(*resources_, *streams_.first())));
    RETURN_IF_ERROR(streams_.Open(parsed, [this] { return account_.Enter(); }));
    return parsed;
  }

  const GenerateResources* const resources_;
  CallAccount account_;
  SharedWriter writer_;
  AnswerStreams streams_;
};

class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, SharedWriter::Call {
 public:
  StreamReactor(const GenerateResources* resources, const IncomingCall& call)
      : context_(call.context),
        answers_(resources, "Generate", call, static_cast<SharedWriter::Call*>(this),
                 /*one_reply=*/false) {}

  void Start(const grpc::ByteBuffer& request) { answers_.Start(request); }

  void OnWriteDone(bool ok) override { answers_.writer().WriteDone(ok); }
  void OnCancel() override { answers_.writer().Cancel(); }
  void OnDone() override {
    answers_.Done();
    delete this;
  }

 private:
  void BeginWrite(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override {
    answers_.Ending(status);
    if (last == nullptr) return Finish(ToGrpcStatus(status));
    StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  grpc::CallbackServerContext* const context_;
  AnswersCall answers_;
};

class ReplyReactor final : public grpc::ServerUnaryReactor, SharedWriter::Call {
 public:
  ReplyReactor(const GenerateResources* resources, const IncomingCall& call,
               grpc::ByteBuffer* response)
      : context_(call.context),
        response_(response),
        answers_(resources, "GenerateUnary", call, static_cast<SharedWriter::Call*>(this),
                 /*one_reply=*/true) {}

  void Start(const grpc::ByteBuffer& request) { answers_.Start(request); }

  void OnCancel() override { answers_.writer().Cancel(); }
  void OnDone() override {
    answers_.Done();
    delete this;
  }

 private:
  void BeginWrite(const grpc::ByteBuffer*) override {}  // the reply is the last message
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override {
    if (last != nullptr) *response_ = *last;
    answers_.Ending(status);
    Finish(ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  AnswersCall answers_;
};

}  // namespace

bool AsksForSeveral(const grpc::ByteBuffer& request) {
  using google::protobuf::internal::WireFormatLite;
  grpc::ByteBuffer bytes = request;  // shares the slices
  grpc::ProtoBufferReader reader(&bytes);
  google::protobuf::io::CodedInputStream in(&reader);
  uint32_t n = 1, best_of = 1;
  while (const uint32_t tag = in.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const bool number = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_VARINT;
    if (number && field == v1::GenerateRequest::kNFieldNumber) {
      if (!in.ReadVarint32(&n)) return false;
    } else if (number && field == v1::GenerateRequest::kBestOfFieldNumber) {
      if (!in.ReadVarint32(&best_of)) return false;
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return false;
    }
  }
  return n > 1 || best_of > 1;
}

RawService::ServerStreaming StreamingAnswers(const GenerateResources* resources,
                                             RawService::ServerStreaming one) {
  return [resources, one = std::move(one)](
             const IncomingCall& call,
             const grpc::ByteBuffer* request) -> grpc::ServerWriteReactor<grpc::ByteBuffer>* {
    if (!AsksForSeveral(*request)) return one(call, request);
    auto* reactor = new StreamReactor(resources, call);
    reactor->Start(*request);
    return reactor;
  };
}

RawService::Unary UnaryAnswers(const GenerateResources* resources, RawService::Unary one) {
  return
      [resources, one = std::move(one)](const IncomingCall& call, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) -> grpc::ServerUnaryReactor* {
        if (!AsksForSeveral(*request)) return one(call, request, response);
        auto* reactor = new ReplyReactor(resources, call, response);
        reactor->Start(*request);
        return reactor;
      };
}

}  // namespace quire
