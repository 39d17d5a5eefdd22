// All streams are registered before the first one starts: from then on the call may end, and with
// it the reactor, at any time. Whatever runs later holds the streams by itself.
#include "server/wire/vllm_engine/vllm_generate.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "field/vllm_engine.pb.h"
#include "server/call/status_codec.h"
#include "server/generate/call_opening.h"
#include "server/tracing/request_trace.h"
#include "server/wire/shared_writer.h"
#include "server/wire/stream_member.h"
#include "server/wire/unknown_fields.h"
#include "server/wire/vllm_engine/vllm_frames.h"
#include "server/wire/vllm_engine/vllm_request.h"

namespace quire {
namespace {

namespace wire = ::vllm::grpc::engine;
using Members = std::vector<std::shared_ptr<StreamMember>>;
using Streams = std::vector<std::shared_ptr<GenerationStream>>;

class GenerateReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                              SharedWriter::Call {
 public:
  GenerateReactor(const GenerateResources* resources, const IncomingCall& call)
      : resources_(resources),
        context_(call.context),
        account_(resources, "VllmEngine/Generate", call),
        writer_(static_cast<SharedWriter::Call*>(this)) {
    AddMember(account_.BeginTrace());
  }

  void Start(const grpc::ByteBuffer& bytes) {
    account_.Opened();
    const GenerateResources* const resources = resources_;
    const std::shared_ptr<GenerationStream> first = members_[0]->stream();
    absl::StatusOr<ParsedRequest> decoded = Open(bytes);
    if (!decoded.ok()) return first->Refuse(decoded.status());
    Streams streams;
    for (const auto& member : members_) streams.push_back(member->stream());
    writer_.Close(absl::OkStatus());
    const absl::Status status = SendToEngine(
        resources, first, *std::move(decoded),
        [resources, streams](std::unique_ptr<Request> answer, const OutputOptions& output) {
          SubmitToEngine(resources, streams, AnswersOf(*answer, streams.size()), output);
        });
    if (!status.ok()) first->Refuse(status);
  }

  void OnWriteDone(bool ok) override { writer_.WriteDone(ok); }
  void OnCancel() override { writer_.Cancel(); }
  void OnDone() override {
    writer_.Done();
    if (RequestTrace* trace = members_[0]->stream()->trace()) {
      trace->Closed(account_.code(), SteadyNowNs());
    }
    account_.Done();
    delete this;
  }

 private:
  void AddMember(std::unique_ptr<RequestTrace> trace) {
    auto frames = std::make_unique<VllmFrames>(static_cast<uint32_t>(members_.size()),
                                               resources_->calls.options.max_reply_bytes);
    frames_.push_back(frames.get());
    members_.push_back(std::make_shared<StreamMember>(resources_, &writer_, std::move(frames),
                                                      account_.StreamOrigin(), std::move(trace)));
    writer_.Join(members_.back());
  }

  // Everything that can refuse the request. All streams are registered then, and the first one's
  // request is ready.
  absl::StatusOr<ParsedRequest> Open(const grpc::ByteBuffer& bytes) {
    RETURN_IF_ERROR(account_.Enter());
    wire::GenerateRequest request;
    RETURN_IF_ERROR(ParseKnownFields(bytes, &request));
    ASSIGN_OR_RETURN(const uint32_t choices, ChoicesOf(request));
    const uint64_t seed = SeedOf(*resources_, *members_[0]->stream());
    ASSIGN_OR_RETURN(ParsedRequest decoded, DecodeVllm(request, resources_->model, seed));
    for (uint32_t k = 1; k < choices; ++k) {
      RETURN_IF_ERROR(account_.Enter());
      AddMember(nullptr);
    }
    for (uint32_t k = 0; k < choices; ++k) {
      frames_[k]->Take(request);
      const std::shared_ptr<GenerationStream> stream = members_[k]->stream();
      if (!request.stream()) stream->SendAs(GenerationStream::Shape::kUnary);
      if (choices > 1) {
        members_[k]->OnEnded([this](const absl::Status& status) { AbortAllIf(status); });
      }
      if (k == 0) {
        RETURN_IF_ERROR(Register(resources_, stream, decoded.request_id));
      } else {
        RegisterAnswer(resources_, stream, *members_[0]->stream());
      }
    }
    return decoded;
  }

  // An abort names the request, so it ends all outputs.
  void AbortAllIf(const absl::Status& status) {
    if (ReasonOf(status) != "ABORTED") return;
    for (const auto& member : members_) member->stream()->Abort();
  }

  void BeginWrite(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override {
    account_.Ending(status);
    if (last == nullptr) return Finish(ToGrpcStatus(status));
    StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  const GenerateResources* const resources_;
  grpc::CallbackServerContext* const context_;
  CallAccount account_;
  SharedWriter writer_;
  Members members_;
  std::vector<VllmFrames*> frames_;  // of the members
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartVllmGenerate(const GenerateResources* resources,
                                                              const IncomingCall& call,
                                                              const grpc::ByteBuffer* request) {
  auto* reactor = new GenerateReactor(resources, call);
  reactor->Start(*request);
  return reactor;
}

}  // namespace quire
