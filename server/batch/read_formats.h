// The formats of quire.v1.Inference Score and Embed.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "server/batch/batch_call.h"

namespace quire {

// `resources` outlive the batch. Errors: INVALID_ARGUMENT by field, NOT_FOUND for a model.
absl::StatusOr<Batch> DecodeScore(const grpc::ByteBuffer& bytes,
                                  const GenerateResources* resources);
absl::StatusOr<Batch> DecodeEmbed(const grpc::ByteBuffer& bytes,
                                  const GenerateResources* resources);

}  // namespace quire
