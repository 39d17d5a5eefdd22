// Reads requests until the client has sent its last, and pauses while many are open: a client that
// sends without reading waits.
#include "server/wire/kserve/model_stream.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/generate/call_opening.h"
#include "server/generate/stream_table.h"
#include "server/identity/call_facts.h"
#include "server/wire/shared_writer.h"
#include "server/wire/stream_member.h"

namespace quire {
namespace {

constexpr char kPath[] = "/inference.GRPCInferenceService/ModelStreamInfer";
constexpr const char* kMethod = kPath + 1;
// Requests of one call whose last response is not out.
constexpr int kMaxOpen = 1024;

class Reactor;

// One request. Takes one of the server's streams from its start to its release.
class InferMember final : public StreamMember {
 public:
  InferMember(const GenerateResources* resources, SharedWriter* writer, Reactor* reactor,
              std::unique_ptr<WireFormat> format, const GenerationStream::Origin& caller)
      : StreamMember(resources, writer, std::move(format), caller),
        resources_(resources),
        reactor_(reactor) {}

  // `decoder` is the member's format.
  absl::Status Open(const grpc::ServerContextBase& context, const grpc::ByteBuffer& bytes,
                    WireFormat* decoder) {
    entered_ = true;
    RETURN_IF_ERROR(resources_->streams.Enter(stream()->tenant()));  // refused requests leave too
    RETURN_IF_ERROR(resources_->drain.CheckAccepts());
    const uint64_t seed = SeedOf(*resources_, *stream());
    ASSIGN_OR_RETURN(ParsedRequest decoded,
                     decoder->Decode(context, bytes, resources_->model, seed));
    if (decoder->one_reply()) stream()->SendAs(GenerationStream::Shape::kUnary);
    RETURN_IF_ERROR(Register(resources_, stream(), decoded.request_id));
    return SendToEngine(resources_, stream(), std::move(decoded));
  }

  void Released() override;

 private:
  const GenerateResources* const resources_;
  Reactor* const reactor_;
  bool entered_ = false;
};

class Reactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      SharedWriter::Call {
 public:
  Reactor(const GenerateResources* resources, std::shared_ptr<InferCounters> counters,
          const IncomingCall& call)
      : resources_(resources),
        counters_(std::move(counters)),
        context_(call.context),
        account_(resources, kMethod, call),
        writer_(this) {
    account_.Opened();
    StartRead(&in_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return writer_.Close(absl::OkStatus());  // the client has sent its last request
    Start(in_);
    const std::lock_guard lock(mutex_);
    paused_ = open_ >= kMaxOpen;
    if (!paused_ && !cancelled_) StartRead(&in_);
  }
  void OnWriteDone(bool ok) override { writer_.WriteDone(ok); }
  void OnCancel() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;  // no read starts behind the end of the call
    }
    writer_.Close(StatusOf(FinishReason::kCancelled));
  }
  void OnDone() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    writer_.Done();
    account_.Done();
    delete this;
  }

  // A request's last response is out.
  void Closed() {
    const std::lock_guard lock(mutex_);
    --open_;
    if (!std::exchange(paused_, false) || cancelled_) return;
    StartRead(&in_);
  }

 private:
  void Start(const grpc::ByteBuffer& bytes) {
    // Each message is a request of its own, and the key may have been revoked since the last one.
    const Admission still = resources_->calls.door.Admit(FactsOf(*context_), kPath);
    if (!still.ok()) return writer_.Close(StatusOf(still.refused));
    std::unique_ptr<WireFormat> format = ModelStreamInferFormat(resources_->model, counters_.get());
    WireFormat* const decoder = format.get();
    const auto member = std::make_shared<InferMember>(resources_, &writer_, this, std::move(format),
                                                      account_.StreamOrigin());
    if (!writer_.Join(member)) return;
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    const std::shared_ptr<GenerationStream> stream = member->stream();
    const absl::Status status = member->Open(*context_, bytes, decoder);
    if (!status.ok()) stream->Refuse(status);
  }

  void BeginWrite(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override {
    account_.Ending(status);
    if (last == nullptr) return Finish(ToGrpcStatus(status));
    StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  const GenerateResources* const resources_;
  const std::shared_ptr<InferCounters> counters_;
  grpc::CallbackServerContext* const context_;
  CallAccount account_;
  grpc::ByteBuffer in_;  // of the read in flight
  SharedWriter writer_;
  std::mutex mutex_;
  // Under mutex_.
  int open_ = 0;
  bool paused_ = false;  // no read is in flight, because many requests are open
  bool cancelled_ = false;
};

void InferMember::Released() {
  StreamMember::Released();
  if (entered_) resources_->streams.Leave(stream()->tenant());
  reactor_->Closed();
}

}  // namespace

RawService::Bidi ModelStream(const GenerateResources* resources,
                             std::shared_ptr<InferCounters> counters) {
  return [resources, counters = std::move(counters)](const IncomingCall& call) {
    return new Reactor(resources, counters, call);
  };
}

}  // namespace quire
