// JobCall: the calls of the Jobs service on the jobs thread: those of one request and one answer,
// and the common part of the streaming ones.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "server/call/connection_table.h"
#include "server/call/raw_service.h"
#include "server/call/wire_check.h"
#include "server/jobs/job_resources.h"
#include "server/jobs/job_runner.h"

namespace quire {

// FAILED_PRECONDITION (NO_SESSION_DIR) for a server without a session directory.
absl::Status NeedJobs(const JobResources& resources);

// From the request's bytes to the answer's, on the jobs thread.
using JobFunction = std::function<absl::StatusOr<std::string>(
    JobRunner& runner, const Caller& caller, const grpc::ByteBuffer& request)>;

// `resources` outlive the calls; `path` is a literal.
RawService::Unary UnaryJobCall(const JobResources* resources, const char* path,
                               JobFunction function);

// A call of absl::Status function(JobRunner&, const Caller&, const Request&, Response*).
template <typename Request, typename Response, typename Function>
RawService::Unary MakeJobCall(const JobResources* resources, const char* path, Function function) {
  return UnaryJobCall(resources, path,
                      [function](JobRunner& runner, const Caller& caller,
                                 const grpc::ByteBuffer& bytes) -> absl::StatusOr<std::string> {
                        Request request;
                        Response response;
                        RETURN_IF_ERROR(ParseMessage(bytes, &request));
                        RETURN_IF_ERROR(function(runner, caller, request, &response));
                        return response.SerializeAsString();
                      });
}

// The common part of Create and Results. The jobs thread alone touches the state of such a call.
// Owned by shared_ptr: by the library from Begin to Done, and by every job on its way to the call.
class JobStream : public std::enable_shared_from_this<JobStream> {
 public:
  // `method`: a literal.
  JobStream(const JobResources* resources, const IncomingCall& call, const char* method);
  virtual ~JobStream() = default;
  JobStream(const JobStream&) = delete;
  JobStream& operator=(const JobStream&) = delete;

 protected:
  // Makes the library hold the call. On a server without jobs the call then ends by itself, and
  // nothing is to be posted: false.
  bool Begin();
  // From OnDone.
  void Done();
  // Runs `job` on the jobs thread, at once or at this time of the steady clock.
  template <typename Job>
  void Post(Job job, int64_t time_ns = 0) {
    JobStream* const call = published_.load(std::memory_order_acquire);
    auto held = [self = call->shared_from_this(), job = std::move(job)]() mutable { job(); };
    JobRunner& runner = *call->resources_->runner;
    time_ns == 0 ? runner.Post(std::move(held)) : runner.PostAt(time_ns, std::move(held));
  }

  // --- The jobs thread's.
  // Ends the call unless it has ended.
  void End(const absl::Status& status);
  bool ended() const { return ended_; }

  const JobResources* const resources_;
  const CallerRef caller_;

 private:
  virtual void ReleaseAll() = 0;
  virtual void FinishWith(const absl::Status& status) = 0;

  const char* const method_;
  const int64_t opened_ns_;
  const OpenCall call_;
  std::atomic<JobStream*> published_{nullptr};
  std::shared_ptr<JobStream> self_;
  bool ended_ = false;
};

}  // namespace quire
