// KvEvent: a change of the blocks of tokens whose KV a tenant can reuse, and batches of such
// changes, as subscribers get them (engine/kv_event_log.h). Plain data.
//
// A block is block_size tokens after all tokens in front of them; partly filled blocks are not told
// of. Its hash names it: equal tokens behind equal tokens have equal hashes, in every server and
// after every start. The hash serves subscribers alone: the server itself finds KV by comparing
// tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/values/request.h"

namespace quire {

// A memory that holds KV. A block may be in both.
enum class KvTier : uint8_t { kDevice, kHost };
inline constexpr int kNumKvTiers = 2;
const char* Name(KvTier tier);  // "device", "host"

using KvBlockHash = uint64_t;

// The parent of a block that begins a prompt; the hash of no block.
inline constexpr KvBlockHash kNoKvBlock = 0;

// XXH64 of the tokens, 4 bytes each and little-endian, with the parent's hash as its seed; 1
// instead of 0.
KvBlockHash HashKvBlock(KvBlockHash parent, std::span<const int32_t> tokens);

struct KvEvent {
  enum class Kind : uint8_t {
    kStored,   // the tier has the blocks now
    kRemoved,  // the tier has them no longer
    kCleared,  // no tier has any block of this tenant
  };

  Kind kind = Kind::kCleared;
  KvTier tier = KvTier::kDevice;    // not of kCleared
  std::vector<KvBlockHash> blocks;  // kStored: each the parent of the next
  KvBlockHash parent = kNoKvBlock;  // kStored: of the first block
  int32_t depth = 0;                // kStored: blocks in front of the first one
  std::vector<int32_t> tokens;      // kStored: of all blocks, in order
};

// The place of a batch in a snapshot.
struct KvSnapshotPart {
  int32_t index = 0;  // from 0
  int32_t count = 0;  // batches of the snapshot
};

struct KvEventBatch {
  TenantId tenant = 0;
  // One more than the batch before. The batches of a snapshot have the number of the last batch
  // that they include, so the next batch after them is one more. The first number of a tenant is
  // the time in microseconds, so that numbers of an earlier process or subscription are smaller.
  uint64_t sequence = 0;
  int64_t unix_ns = 0;
  int32_t block_size = 0;  // tokens
  // Set: the batch belongs to a snapshot. The first event of the snapshot is kCleared, and the
  // others are all stored blocks, parents before their children.
  std::optional<KvSnapshotPart> snapshot;
  std::vector<KvEvent> events;
};

// Which KV to drop from the prefix cache: all that no sequence, copy or pin holds.
struct CacheFlush {
  std::optional<TenantId> tenant;  // nullopt: of all tenants
  // Drops the KV of idle sessions too. Their next turns compute it again.
  bool sessions = false;
};

struct FlushedCache {
  int64_t blocks = 0;       // that became free on the device
  int64_t pages = 0;        // that became free on the host
  int64_t kept_blocks = 0;  // that stay, of all tenants: in use, or of idle sessions
  int64_t kept_pages = 0;
};

}  // namespace quire
