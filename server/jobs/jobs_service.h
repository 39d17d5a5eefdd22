// quire.v1.Jobs: Create, Get, List, Cancel, Delete, Results.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/call/raw_service.h"
#include "server/jobs/job_resources.h"

namespace quire {

struct Caller;
struct Job;

// INVALID_ARGUMENT for no name, NOT_FOUND (JOB_NOT_FOUND) for no job of the caller's tenant. The
// jobs thread's.
absl::StatusOr<Job*> FindJob(JobRunner& runner, const Caller& caller, const std::string& id);

// `resources` outlive the service.
std::unique_ptr<RawService> MakeJobsService(const JobResources* resources);

}  // namespace quire
