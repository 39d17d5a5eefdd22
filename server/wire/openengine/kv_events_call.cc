// Requests and batches of the shared call, in this protocol's messages.
#include "server/wire/openengine/kv_events_call.h"

#include <string>

#include "engine/base/status_macros.h"
#include "field/openengine.pb.h"
#include "server/call/status_codec.h"
#include "server/kv_events/kv_event_stream.h"
#include "server/wire/unknown_fields.h"

namespace quire {
namespace {

namespace oe = openengine::v1;

constexpr char kMethod[] = "openengine.v1.Control/SubscribeKvEvents";

// A hash as eight bytes, the highest first.
void SetHash(KvBlockHash hash, oe::KvBlockHash* out) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(hash >> shift & 0xFF);
  out->set_value(bytes);
  out->set_encoding("bytes");
}

oe::StorageMedium MediumOf(KvTier tier) {
  return tier == KvTier::kDevice ? oe::STORAGE_MEDIUM_GPU : oe::STORAGE_MEDIUM_CPU_PINNED;
}

void FillEvent(const KvEvent& event, int32_t block_size, oe::KvEvent* out) {
  switch (event.kind) {
    case KvEvent::Kind::kStored: {
      oe::BlockStored* stored = out->mutable_block_stored();
      for (const KvBlockHash hash : event.blocks) SetHash(hash, stored->add_block_hashes());
      if (event.parent != kNoKvBlock) SetHash(event.parent, stored->mutable_parent_block_hash());
      stored->mutable_token_ids()->Add(event.tokens.begin(), event.tokens.end());
      stored->set_block_size(static_cast<uint32_t>(block_size));
      return stored->set_medium(MediumOf(event.tier));
    }
    case KvEvent::Kind::kRemoved: {
      oe::BlockRemoved* removed = out->mutable_block_removed();
      for (const KvBlockHash hash : event.blocks) SetHash(hash, removed->add_block_hashes());
      return removed->set_medium(MediumOf(event.tier));
    }
    case KvEvent::Kind::kCleared: out->mutable_all_blocks_cleared(); return;
  }
}

// The batches of a snapshot have the number of the state that they make, so that a subscriber may
// come back behind it.
oe::SubscribeKvEventsResponse ToWire(const KvEventBatch& in) {
  oe::SubscribeKvEventsResponse response;
  oe::KvEventBatch* out = response.mutable_batch();
  out->set_sequence_number(in.sequence);
  out->set_timestamp_unix_nanos(static_cast<uint64_t>(in.unix_ns));
  out->set_data_parallel_rank(0);
  for (const KvEvent& event : in.events) FillEvent(event, in.block_size, out->add_events());
  return response;
}

absl::StatusOr<KvSubscriptionStart> Decode(const grpc::ByteBuffer& bytes) {
  oe::SubscribeKvEventsRequest request;
  RETURN_IF_ERROR(ParseKnownFields(bytes, &request));
  for (const uint32_t rank : request.data_parallel_ranks()) {
    if (rank != 0) {
      return InvalidField("data_parallel_ranks", "must be 0: this server has one replica");
    }
  }
  if (!request.include_snapshot() && request.start_sequence_number() == 0) {
    return InvalidField("include_snapshot",
                        "must be true without a start_sequence_number: events alone say nothing "
                        "about the blocks that are there");
  }
  if (request.include_snapshot() && request.start_sequence_number() != 0) {
    return InvalidField("start_sequence_number", "a snapshot begins anew; set one of the two");
  }
  return KvSubscriptionStart{.sequence = request.start_sequence_number(),
                             .snapshot = request.include_snapshot()};
}

// A subscriber that falls too far behind may begin anew.
oe::SubscribeKvEventsResponse ToWire(const absl::Status& failure) {
  oe::SubscribeKvEventsResponse response;
  oe::EngineError* error = response.mutable_error();
  error->set_code(oe::ERROR_CODE_OVERLOADED);
  error->set_message(std::string(failure.message().data(), failure.message().size()));
  error->set_retryable(true);
  return response;
}

}  // namespace

RawService::ServerStreaming OpenEngineKvEvents(SessionResources* resources) {
  return KvEventsCall(
      resources,
      {.method = kMethod,
       .read = Decode,
       .write = [](const KvEventBatch& batch) { return ToWire(batch).SerializeAsString(); },
       .failure = [](const absl::Status& status) { return ToWire(status).SerializeAsString(); }});
}

}  // namespace quire
