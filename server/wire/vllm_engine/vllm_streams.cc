// The state of these calls belongs to the session thread; flushes and KV events are the shared
// calls of server/kv_events/ in this protocol's messages.
#include "server/wire/vllm_engine/vllm_streams.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "field/smg_common.pb.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/kv_events/cache_flush.h"
#include "server/kv_events/kv_event_stream.h"
#include "server/session/session_stream.h"
#include "server/wire/unknown_fields.h"
#include "server/wire/vllm_engine/tokenizer_bundle.h"

namespace quire {
namespace {

namespace wire = ::smg::grpc::common;

constexpr size_t kPartBytes = size_t{64} << 10;  // as other servers of the protocol

class TokenizerCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public SessionStream {
 public:
  TokenizerCall(SessionResources* resources, const IncomingCall& call,
                std::shared_ptr<SharedTokenizerBundle> shared)
      : SessionStream(resources, call, "vllm.grpc.engine.VllmEngine/GetTokenizer"),
        shared_(std::move(shared)) {}

  void Start(const grpc::ByteBuffer& bytes) {
    wire::GetTokenizerRequest request;
    absl::Status status = ParseKnownFields(bytes, &request);
    Begin();
    if (status.ok()) {
      // Reading the files is too slow for the session thread.
      status = resources_->calls.text_pool.Run(tenant_, 0,
                                               [self = shared_from_this(), this] { Bundle(); });
    }
    if (!status.ok()) Post([this, status] { End(status); });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      if (!ok) return End(absl::CancelledError("the call was cancelled"));
      if (!ended()) Next();
    });
  }
  void OnCancel() override {
    Post([this] { End(absl::CancelledError("the call was cancelled")); });
  }
  void OnDone() override { Done(); }

 private:
  void Bundle() {
    Post([this, bundle = shared_->Get()] {
      if (ended()) return;
      if (!bundle.ok()) return End(bundle.status());
      bundle_ = *bundle;
      SetAlarm(deadline_, resources_->calls.options.default_deadline_seconds, [this] {
        End(Refusal(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                    "the tokenizer was not read in time"));
      });
      Next();
    });
  }

  void Next() {
    const std::string& zip = bundle_->zip;
    if (sent_ == zip.size()) return End(absl::OkStatus());
    wire::GetTokenizerChunk part;
    part.set_data(zip.substr(sent_, kPartBytes));
    sent_ += part.data().size();
    if (sent_ == zip.size()) part.set_sha256(bundle_->sha256);
    const std::string bytes = part.SerializeAsString();
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    StartWrite(&buffer_);
  }

  void ReleaseAll() override {
    deadline_.Cancel();
    bundle_.reset();
  }
  void FinishWith(const absl::Status& status) override {
    ServerWriteReactor::Finish(ToGrpcStatus(status));
  }

  const std::shared_ptr<SharedTokenizerBundle> shared_;
  // The session thread's.
  CallAlarm deadline_;  // for the reader
  std::shared_ptr<const TokenizerBundle> bundle_;
  size_t sent_ = 0;
  grpc::ByteBuffer buffer_;  // of the write in flight
};

wire::KvCacheTier TierOf(KvTier tier) {
  return tier == KvTier::kDevice ? wire::KV_CACHE_TIER_DEVICE : wire::KV_CACHE_TIER_HOST;
}

void FillStored(const KvEvent& event, int32_t block_size, wire::KvBlocksStored* out) {
  const auto tokens = static_cast<size_t>(block_size);
  for (size_t i = 0; i < event.blocks.size(); ++i) {
    wire::KvBlock* const block = out->add_blocks();
    block->set_block_hash(static_cast<int64_t>(event.blocks[i]));
    block->set_block_size(block_size);
    const auto* const first = event.tokens.data() + i * tokens;
    block->mutable_token_ids()->Add(first, first + tokens);
  }
  if (event.parent != kNoKvBlock) out->set_parent_block_hash(static_cast<int64_t>(event.parent));
  out->set_tier(TierOf(event.tier));
}

void FillEvent(const KvEvent& event, int32_t block_size, wire::KvCacheEvent* out) {
  switch (event.kind) {
    case KvEvent::Kind::kStored: return FillStored(event, block_size, out->mutable_stored());
    case KvEvent::Kind::kRemoved:
      for (const KvBlockHash hash : event.blocks) {
        out->mutable_removed()->add_block_hashes(static_cast<int64_t>(hash));
      }
      return out->mutable_removed()->set_tier(TierOf(event.tier));
    case KvEvent::Kind::kCleared: out->mutable_cleared(); return;
  }
}

wire::KvEventBatch ToWire(const KvEventBatch& in) {
  wire::KvEventBatch out;
  out.set_sequence_number(in.sequence);
  out.set_timestamp(static_cast<double>(in.unix_ns) * 1e-9);
  if (in.snapshot.has_value()) {
    // There the parts of a snapshot have numbers of their own, up to the one of the state.
    out.set_sequence_number(in.sequence -
                            static_cast<uint64_t>(in.snapshot->count - 1 - in.snapshot->index));
    out.mutable_snapshot()->set_index(static_cast<uint32_t>(in.snapshot->index));
    out.mutable_snapshot()->set_count(static_cast<uint32_t>(in.snapshot->count));
  }
  for (const KvEvent& event : in.events) FillEvent(event, in.block_size, out.add_events());
  return out;
}

// The subscriber names the last batch that it has; 0: none.
absl::StatusOr<KvSubscriptionStart> ReadStart(const grpc::ByteBuffer& bytes) {
  wire::SubscribeKvEventsRequest request;
  RETURN_IF_ERROR(ParseKnownFields(bytes, &request));
  const uint64_t last = request.start_sequence_number();
  if (last == 0) return KvSubscriptionStart{};
  return KvSubscriptionStart{.sequence = last + 1, .snapshot = false};
}

constexpr float kMaxFlushSeconds = 600;

absl::StatusOr<CacheFlushRequest> ReadFlush(const Caller& caller, const grpc::ByteBuffer& bytes) {
  wire::FlushCacheRequest request;
  RETURN_IF_ERROR(ParseKnownFields(bytes, &request));
  // Written so that what is not a number fails too.
  if (!(request.timeout_s() >= 0 && request.timeout_s() <= kMaxFlushSeconds)) {
    return InvalidField("timeout_s", "must be 0 to 600");
  }
  return CacheFlushRequest{{.tenant = caller.tenant}, static_cast<double>(request.timeout_s())};
}

std::string Flushed(const FlushedCache& flushed) {
  wire::FlushCacheResponse response;
  response.set_success(flushed.kept_blocks + flushed.kept_pages == 0);
  response.set_message("freed " + std::to_string(flushed.blocks) + " blocks; " +
                       std::to_string(flushed.kept_blocks) + " blocks and " +
                       std::to_string(flushed.kept_pages) +
                       " pages stay: of running requests or of sessions");
  return response.SerializeAsString();
}

}  // namespace

RawService::Unary FlushCacheCall(SessionResources* resources) {
  return CacheFlushCall(
      resources,
      {.method = "vllm.grpc.engine.VllmEngine/FlushCache", .read = ReadFlush, .write = Flushed});
}

RawService::ServerStreaming GetTokenizerCall(SessionResources* resources,
                                             std::shared_ptr<SharedTokenizerBundle> bundle) {
  return [resources, bundle = std::move(bundle)](const IncomingCall& call,
                                                 const grpc::ByteBuffer* request) {
    const auto made = std::make_shared<TokenizerCall>(resources, call, bundle);
    made->Start(*request);
    return made.get();
  };
}

RawService::ServerStreaming SubscribeKvEventsCall(SessionResources* resources) {
  return KvEventsCall(resources, {.method = "vllm.grpc.engine.VllmEngine/SubscribeKvEvents",
                                  .read = ReadStart,
                                  .write = [](const KvEventBatch& batch) {
                                    return ToWire(batch).SerializeAsString();
                                  }});
}

}  // namespace quire
