// Create of quire.v1.Jobs: the input comes in pieces and goes to its file as it comes.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "server/call/raw_service.h"
#include "server/jobs/job_call.h"

namespace quire {

// `resources` outlive the call; the reactor deletes itself.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartJobUpload(const JobResources* resources,
                                                          const IncomingCall& call,
                                                          grpc::ByteBuffer* response);

}  // namespace quire
