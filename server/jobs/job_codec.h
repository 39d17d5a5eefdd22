// JobCodec: a job as a message, and the clock of jobs.
#pragma once

#include <cstdint>

#include "server/jobs/job.h"

namespace quire {

namespace v1 {
class Job;
}  // namespace v1

// Since 1970: a job's times are those of several processes.
int64_t JobClockNs();

void EncodeJob(const Job& job, v1::Job* out);

}  // namespace quire
