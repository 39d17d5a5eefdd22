// Items start on the thread that has the call, and later on those that end others. A thread that
// starts items keeps the reactor, because the call may end meanwhile.
#include "server/batch/batch_call.h"

#include <memory>
#include <mutex>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/generate/call_opening.h"

namespace quire {
namespace {

class Reactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                      public std::enable_shared_from_this<Reactor>,
                      SharedWriter::Call {
 public:
  Reactor(const GenerateResources* resources, const BatchMethod* method, const IncomingCall& call)
      : resources_(resources),
        method_(method),
        context_(call.context),
        account_(resources, method->name, call),
        origin_(account_.StreamOrigin()),
        writer_(this) {}

  // `self` keeps the reactor until the call is done.
  void Start(std::shared_ptr<Reactor> self, const grpc::ByteBuffer& request) {
    self_ = std::move(self);
    account_.Opened();
    if (const absl::Status status = Decode(request); !status.ok()) return writer_.Close(status);
    StartItems();
  }

  // Starts the items that may start now, and lets the call end behind the last one.
  void StartItems() {
    const std::shared_ptr<Reactor> kept = shared_from_this();
    std::unique_lock lock(mutex_);
    while (!cancelled_ && next_ < batch_.num_items && open_ < kMaxOpenItems) {
      const auto index = static_cast<uint32_t>(next_++);
      ++open_;
      ++starting_;
      lock.unlock();
      batch_.start({index, origin_, &writer_, [kept] { kept->ItemDone(); }});
      lock.lock();
      --starting_;
    }
    const bool last = next_ == batch_.num_items && starting_ == 0;
    if (!last || std::exchange(closed_, true)) return;
    lock.unlock();
    writer_.Close(absl::OkStatus());
  }

  // An item's answer is out.
  void ItemDone() {
    {
      const std::lock_guard lock(mutex_);
      --open_;
    }
    StartItems();
  }

  void OnWriteDone(bool ok) override { writer_.WriteDone(ok); }
  void OnCancel() override {
    Cancel();
    writer_.Close(StatusOf(FinishReason::kCancelled));
  }
  void OnDone() override {
    Cancel();
    writer_.Done();
    account_.Done();
    self_.reset();
  }

 private:
  absl::Status Decode(const grpc::ByteBuffer& request) {
    RETURN_IF_ERROR(resources_->drain.CheckAccepts());
    ASSIGN_OR_RETURN(batch_, method_->decode(request, resources_));
    return absl::OkStatus();
  }

  void Cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }

  void BeginWrite(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override {
    account_.Ending(status);
    if (last == nullptr) return Finish(ToGrpcStatus(status));
    StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }
  void Reset() override { context_->TryCancel(); }

  const GenerateResources* const resources_;
  const BatchMethod* const method_;
  grpc::CallbackServerContext* const context_;
  CallAccount account_;
  const GenerationStream::Origin origin_;
  SharedWriter writer_;
  std::shared_ptr<Reactor> self_;
  Batch batch_;  // constant from the first item on
  std::mutex mutex_;
  // Under mutex_.
  size_t next_ = 0;  // the item to start next
  int open_ = 0;
  int starting_ = 0;        // threads in Batch::start
  bool closed_ = false;     // all items have started
  bool cancelled_ = false;  // no further item starts
};

}  // namespace

RawService::ServerStreaming StreamingBatch(const GenerateResources* resources, BatchMethod method) {
  const auto kept = std::make_shared<const BatchMethod>(std::move(method));
  return [resources, kept](const IncomingCall& call, const grpc::ByteBuffer* request) {
    const auto reactor = std::make_shared<Reactor>(resources, kept.get(), call);
    reactor->Start(reactor, *request);
    return reactor.get();
  };
}

}  // namespace quire
