// BatchCall: one gRPC call with many items, each a request and a stream of its own, whose answers
// share the call's writer. Score and Embed are such calls.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"
#include "server/generate/request_codec.h"
#include "server/generate/wire_format.h"

namespace quire {

struct Batch {
  // An item that is refused does not refuse the others.
  std::vector<absl::StatusOr<ParsedRequest>> items;
  // The format of an item's one answer; a failure is an answer, too.
  std::function<std::unique_ptr<FrameFormat>(uint32_t index)> make_format;
};

struct BatchMethod {
  const char* name;  // in metrics; a literal
  // Not OK: the call ends with that.
  std::function<absl::StatusOr<Batch>(const grpc::ByteBuffer& bytes, const ServingModel& model)>
      decode;
};

// Items of one call that run or wait at a time; the others follow as these end.
inline constexpr int kMaxOpenItems = 64;

// A handler for RawService; the reactors delete themselves. `resources` outlive every call.
RawService::ServerStreaming StreamingBatch(const GenerateResources* resources, BatchMethod method);

}  // namespace quire
