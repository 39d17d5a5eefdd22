// BatchCall: one gRPC call with many items, each a request and a stream of its own, whose answers
// share the call's writer. GenerateBatch, Score and Embed are such calls.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/wire/shared_writer.h"

namespace quire {

// Where an item belongs.
struct ItemPlace {
  uint32_t index = 0;
  GenerationStream::Origin origin;
  SharedWriter* writer = nullptr;
  // The item calls it once, as its last act, when its answer is out
  // (SharedWriter::Member::Released). Keeps the call until then.
  std::function<void()> released;
};

struct Batch {
  size_t num_items = 0;
  // Makes an item, joins it to the writer and starts it; a failure is an answer, too. Nothing
  // happens where the writer takes it no more. Called by one thread for each item, several at once.
  std::function<void(ItemPlace place)> start;
};

struct BatchMethod {
  const char* name;  // in metrics; a literal
  // Not OK: the call ends with that.
  std::function<absl::StatusOr<Batch>(const grpc::ByteBuffer& bytes,
                                      const GenerateResources* resources)>
      decode;
};

// Items of one call that run or wait at a time; the others follow as these end.
inline constexpr int kMaxOpenItems = 64;
// Items of one call.
inline constexpr int kMaxItems = 1024;

// A handler for RawService; the reactors delete themselves. `resources` outlive every call.
RawService::ServerStreaming StreamingBatch(const GenerateResources* resources, BatchMethod method);

}  // namespace quire
