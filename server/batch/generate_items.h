// The items of quire.v1.Inference GenerateBatch: each is answered as GenerateUnary answers it.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "server/batch/batch_call.h"

namespace quire {

// `resources` outlive the batch. INVALID_ARGUMENT for a number of requests that no batch has; what
// else is wrong fails its item alone.
absl::StatusOr<Batch> DecodeGenerateBatch(const grpc::ByteBuffer& bytes,
                                          const GenerateResources* resources);

}  // namespace quire
