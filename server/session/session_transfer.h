// Sessions.Export and Sessions.Import: a session as the bytes of a SessionFile, out and in.
//
// An export asks for the KV to be copied to the host, waits a little for that, and then holds the
// session as a turn would while it sends the pages. No request can read the pages of an import
// until the whole file has proved right. Either needs the memory of one piece at a time.
#pragma once

#include "server/call/raw_service.h"
#include "server/session/session_file.h"
#include "server/session/session_resources.h"

namespace quire {

// The shape in the headers of this server's files: the whole model's, for any number of ranks. An
// import of another shape is refused.
SessionFileShape ShapeOf(const ServingModel& model);
// The files that this server takes.
SessionFileReader::Limits FileLimits(const ServingModel& model);

// Handlers for RawService; the reactors delete themselves. `resources` outlive every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartExport(SessionResources* resources,
                                                        const IncomingCall& call,
                                                        const grpc::ByteBuffer* request);
grpc::ServerReadReactor<grpc::ByteBuffer>* StartImport(SessionResources* resources,
                                                       const IncomingCall& call,
                                                       grpc::ByteBuffer* response);

}  // namespace quire
