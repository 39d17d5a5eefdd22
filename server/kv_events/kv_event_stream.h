// KvEventsCall: a streaming call that tells its reader which blocks have KV, for any protocol. A
// protocol is two functions: one that reads the request, one that makes a message of a batch.
//
// One write is in flight at a time. Batches wait in the engine's log (engine/kv_event_log.h), not
// in the call: a reader that is too far behind ends with OUT_OF_RANGE (KV_EVENTS_MISSED), and one
// that does not take a message for FrontOptions::slow_reader_timeout_seconds with
// RESOURCE_EXHAUSTED (SLOW_READER).
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/kv_event_log.h"
#include "server/call/raw_service.h"

namespace quire {

struct SessionResources;

// Both functions are called by any thread, and by several at once.
struct KvEventProtocol {
  const char* method = "";  // in metrics
  // A status is the call's end, as it is.
  std::function<absl::StatusOr<KvSubscriptionStart>(const grpc::ByteBuffer& request)> read;
  // The bytes of the message.
  std::function<std::string(const KvEventBatch& batch)> write;
  // The bytes of a last message that tells what ended the stream, behind which the call ends with
  // OK; null: the call ends with the status. Not asked for a slow reader.
  std::function<std::string(const absl::Status& status)> failure = nullptr;
};

// `resources` outlive the calls. The reader sees the blocks of its own tenant.
RawService::ServerStreaming KvEventsCall(SessionResources* resources, KvEventProtocol protocol);

}  // namespace quire
