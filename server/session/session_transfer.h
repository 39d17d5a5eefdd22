// Sessions.Export and Sessions.Import: a session as the bytes of a SessionFile, out and in.
//
// An export asks for the KV to be copied to the host, waits for that a little, and then holds the
// session as a turn would while its pages are sent. An import's pages are in nobody's reach until
// the file was right to its end. Either takes the memory of a piece at a time.
#pragma once

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"
#include "server/session/session_file.h"

namespace quire {

// What files of this server's sessions have in their headers, and must have to be taken in.
SessionFileShape ShapeOf(const ServingModel& model);

// Handlers for RawService; the reactors delete themselves. `host` outlives every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartExport(StreamHost* host,
                                                        grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request);
grpc::ServerReadReactor<grpc::ByteBuffer>* StartImport(StreamHost* host,
                                                       grpc::CallbackServerContext* context,
                                                       grpc::ByteBuffer* response);

}  // namespace quire
