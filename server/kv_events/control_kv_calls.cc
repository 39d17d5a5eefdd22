// Messages of quire.v1 from batches and flushes.
#include "server/kv_events/control_kv_calls.h"

#include <string>

#include "quire/v1/control.pb.h"
#include "server/call/wire_check.h"
#include "server/kv_events/cache_flush.h"
#include "server/kv_events/kv_event_stream.h"

namespace quire {
namespace {

v1::KvEvent::Tier TierOf(const KvEvent& event) {
  return event.tier == KvTier::kDevice ? v1::KvEvent::TIER_DEVICE : v1::KvEvent::TIER_HOST;
}

void Encode(const KvEvent& event, v1::KvEvent* out) {
  switch (event.kind) {
    case KvEvent::Kind::kStored: {
      v1::KvEvent::Stored* stored = out->mutable_stored();
      stored->set_tier(TierOf(event));
      stored->mutable_blocks()->Add(event.blocks.begin(), event.blocks.end());
      stored->set_parent(event.parent);
      stored->set_depth(static_cast<uint32_t>(event.depth));
      stored->mutable_token_ids()->Add(event.tokens.begin(), event.tokens.end());
      return;
    }
    case KvEvent::Kind::kRemoved:
      out->mutable_removed()->set_tier(TierOf(event));
      out->mutable_removed()->mutable_blocks()->Add(event.blocks.begin(), event.blocks.end());
      return;
    case KvEvent::Kind::kCleared: out->mutable_cleared(); return;
  }
}

std::string Encode(const KvEventBatch& batch) {
  v1::KvEventBatch out;
  out.set_sequence(batch.sequence);
  out.set_unix_nanos(batch.unix_ns);
  out.set_block_size(static_cast<uint32_t>(batch.block_size));
  if (batch.snapshot) {
    out.mutable_snapshot()->set_index(static_cast<uint32_t>(batch.snapshot->index));
    out.mutable_snapshot()->set_count(static_cast<uint32_t>(batch.snapshot->count));
  }
  for (const KvEvent& event : batch.events) Encode(event, out.add_events());
  return out.SerializeAsString();
}

absl::StatusOr<KvSubscriptionStart> ReadStart(const grpc::ByteBuffer& bytes) {
  v1::SubscribeKvEventsRequest request;
  const absl::Status status = ParseMessage(bytes, &request);
  if (!status.ok()) return status;
  return KvSubscriptionStart{.sequence = request.sequence(), .snapshot = !request.no_snapshot()};
}

absl::StatusOr<CacheFlushRequest> ReadFlush(const Caller&, const grpc::ByteBuffer& bytes) {
  v1::FlushCacheRequest request;
  const absl::Status status = ParseMessage(bytes, &request);
  if (!status.ok()) return status;
  CacheFlush flush{.sessions = request.sessions()};
  if (request.has_tenant()) flush.tenant = TenantIdOf(request.tenant());
  return CacheFlushRequest{.flush = flush};
}

std::string Encode(const FlushedCache& flushed) {
  v1::FlushCacheResponse response;
  response.set_blocks(static_cast<uint64_t>(flushed.blocks));
  response.set_pages(static_cast<uint64_t>(flushed.pages));
  response.set_kept_blocks(static_cast<uint64_t>(flushed.kept_blocks));
  response.set_kept_pages(static_cast<uint64_t>(flushed.kept_pages));
  return response.SerializeAsString();
}

}  // namespace

void AddKvCalls(RawService* service, SessionResources* resources) {
  service->Add(
      "/quire.v1.Control/SubscribeKvEvents",
      KvEventsCall(resources, {.method = "SubscribeKvEvents",
                               .read = ReadStart,
                               .write = [](const KvEventBatch& batch) { return Encode(batch); }}));
  service->Add("/quire.v1.Control/FlushCache",
               CacheFlushCall(resources, {.method = "FlushCache",
                                          .read = ReadFlush,
                                          .write = [](const FlushedCache& flushed) {
                                            return Encode(flushed);
                                          }}));
}

}  // namespace quire
