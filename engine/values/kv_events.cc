// The hash that names a block to subscribers.
#include "engine/values/kv_events.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>

namespace quire {

static_assert(std::endian::native == std::endian::little, "hashes are of little-endian tokens");

const char* Name(KvTier tier) { return tier == KvTier::kDevice ? "device" : "host"; }

KvBlockHash HashKvBlock(KvBlockHash parent, std::span<const int32_t> tokens) {
  const uint64_t hash = XXH64(tokens.data(), tokens.size_bytes(), parent);
  return hash == kNoKvBlock ? 1 : hash;
}

}  // namespace quire
