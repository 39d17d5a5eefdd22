// Answers are made on the jobs thread, which writes to the disk and waits for nothing else.
#include "server/jobs/job_call.h"

#include "engine/base/clock.h"
#include "server/call/status_codec.h"
#include "server/metrics/metrics.h"

namespace quire {
namespace {

class JobReactor final : public grpc::ServerUnaryReactor {
 public:
  JobReactor(ConnectionTable* connections, const std::string& peer) : call_(connections, peer) {}
  void OnDone() override { delete this; }

 private:
  const OpenCall call_;
};

double SecondsSince(int64_t ns) { return static_cast<double>(SteadyNowNs() - ns) * 1e-9; }

struct Method {
  const JobResources* resources;
  std::string name;  // with its service: others have methods of the same names
  JobFunction function;

  void End(const absl::StatusOr<std::string>& answer, int64_t opened_ns, grpc::ByteBuffer* out,
           grpc::ServerUnaryReactor* reactor) const {
    if (answer.ok()) *out = ToByteBuffer(answer->data(), answer->size());
    resources->calls.metrics.RpcFinished(name, static_cast<int>(answer.status().code()),
                                         SecondsSince(opened_ns));
    reactor->Finish(ToGrpcStatus(answer.status()));
  }
};

}  // namespace

absl::Status NeedJobs(const JobResources& resources) {
  if (resources.runner != nullptr) return absl::OkStatus();
  return Refusal(absl::StatusCode::kFailedPrecondition, "NO_SESSION_DIR",
                 "jobs are kept in the session directory, and this server has none: start it with "
                 "--session-dir");
}

RawService::Unary UnaryJobCall(const JobResources* resources, const char* path,
                               JobFunction function) {
  const auto method = std::make_shared<const Method>(
      Method{resources, std::string(path).substr(1), std::move(function)});
  return [method](const IncomingCall& incoming, const grpc::ByteBuffer* in,
                  grpc::ByteBuffer* out) -> grpc::ServerUnaryReactor* {
    const JobResources& resources = *method->resources;
    const int64_t opened_ns = SteadyNowNs();
    auto* reactor = new JobReactor(&resources.calls.connections, incoming.context->peer());
    if (const absl::Status status = NeedJobs(resources); !status.ok()) {
      method->End(status, opened_ns, out, reactor);
      return reactor;
    }
    resources.runner->Post([method, caller = incoming.caller, in, out, opened_ns, reactor] {
      method->End(method->function(*method->resources->runner, *caller, *in), opened_ns, out,
                  reactor);
    });
    return reactor;
  };
}

JobStream::JobStream(const JobResources* resources, const IncomingCall& call, const char* method)
    : resources_(resources),
      caller_(call.caller),
      method_(method),
      opened_ns_(SteadyNowNs()),
      call_(&resources->calls.connections, call.context->peer()) {}

bool JobStream::Begin() {
  published_.store(this, std::memory_order_release);
  self_ = shared_from_this();
  const absl::Status status = NeedJobs(*resources_);
  if (!status.ok()) End(status);
  return status.ok();
}

void JobStream::Done() {
  JobStream* const call = published_.load(std::memory_order_acquire);
  if (call->resources_->runner == nullptr) return call->self_.reset();
  Post([this] {
    if (!ended_) ReleaseAll();
    ended_ = true;
    self_.reset();
  });
}

void JobStream::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  ReleaseAll();
  resources_->calls.metrics.RpcFinished(method_, static_cast<int>(status.code()),
                                        SecondsSince(opened_ns_));
  FinishWith(status);
}

}  // namespace quire
