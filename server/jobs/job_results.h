// Results of quire.v1.Jobs: the results of a job from an offset on, and those that come.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "server/call/raw_service.h"
#include "server/jobs/job_call.h"

namespace quire {

// `resources` outlive the call; the reactor deletes itself.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartJobResults(const JobResources* resources,
                                                            const IncomingCall& call,
                                                            const grpc::ByteBuffer* request);

}  // namespace quire
