// The methods of quire.v1.Jobs that have one request and one answer; the streaming ones start here.
#include "server/jobs/jobs_service.h"

#include "engine/base/status_macros.h"
#include "quire/v1/jobs.pb.h"
#include "server/call/message_call.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/jobs/job_call.h"
#include "server/jobs/job_codec.h"
#include "server/jobs/job_results.h"
#include "server/jobs/job_upload.h"

namespace quire {
namespace {

absl::Status Get(JobRunner& runner, const Caller& caller, const v1::GetJobRequest& request,
                 v1::Job* out) {
  ASSIGN_OR_RETURN(const Job* job, FindJob(runner, caller, request.job_id()));
  EncodeJob(*job, out);
  return absl::OkStatus();
}

absl::Status List(JobRunner& runner, const Caller& caller, const v1::ListJobsRequest&,
                  v1::ListJobsResponse* out) {
  for (const Job* job : runner.Of(caller.tenant)) EncodeJob(*job, out->add_jobs());
  return absl::OkStatus();
}

absl::Status Cancel(JobRunner& runner, const Caller& caller, const v1::CancelJobRequest& request,
                    v1::Job* out) {
  ASSIGN_OR_RETURN(Job* const job, FindJob(runner, caller, request.job_id()));
  RETURN_IF_ERROR(runner.Cancel(*job));
  EncodeJob(*job, out);
  return absl::OkStatus();
}

absl::Status Delete(JobRunner& runner, const Caller& caller, const v1::DeleteJobRequest& request,
                    v1::DeleteJobResponse*) {
  ASSIGN_OR_RETURN(Job* const job, FindJob(runner, caller, request.job_id()));
  return runner.Remove(*job);
}

}  // namespace

absl::StatusOr<Job*> FindJob(JobRunner& runner, const Caller& caller, const std::string& id) {
  RETURN_IF_ERROR(CheckName("job_id", id));
  Job* const job = runner.Find(caller.tenant, id);
  if (job != nullptr) return job;
  return Refusal(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                 "job_id: there is no job '" + id + "'");
}

std::unique_ptr<RawService> MakeJobsService(const JobResources* resources) {
  auto service = std::make_unique<RawService>(&resources->calls.door);
  service->Add("/quire.v1.Jobs/Create",
               RawService::ClientStreaming(
                   [resources](const IncomingCall& call, grpc::ByteBuffer* response) {
                     return StartJobUpload(resources, call, response);
                   }));
  service->Add("/quire.v1.Jobs/Results",
               RawService::ServerStreaming(
                   [resources](const IncomingCall& call, const grpc::ByteBuffer* request) {
                     return StartJobResults(resources, call, request);
                   }));
  const char* const get = "/quire.v1.Jobs/Get";
  service->Add(get, MakeJobCall<v1::GetJobRequest, v1::Job>(resources, get, Get));
  const char* const list = "/quire.v1.Jobs/List";
  service->Add(list, MakeJobCall<v1::ListJobsRequest, v1::ListJobsResponse>(resources, list, List));
  const char* const cancel = "/quire.v1.Jobs/Cancel";
  service->Add(cancel, MakeJobCall<v1::CancelJobRequest, v1::Job>(resources, cancel, Cancel));
  const char* const remove = "/quire.v1.Jobs/Delete";
  service->Add(remove,
               MakeJobCall<v1::DeleteJobRequest, v1::DeleteJobResponse>(resources, remove, Delete));
  return service;
}

}  // namespace quire
