// KvMap: the owner of every block of the device and of every page of host memory at one moment, for
// people who look at a server. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// The first that is true, from the last to the first.
enum class BlockOwner : uint8_t {
  kFree,       // holds nothing
  kCached,     // KV of a prompt that no session keeps; evictable
  kSession,    // KV that an idle session keeps; evictable unless it is pinned
  kRestoring,  // of a request that waits for more KV from the host
  kRunning,    // in the block table of a row; also of one that ends or is preempted
  kCopying,    // a copy reads or fills it
};
inline constexpr size_t kNumBlockOwners = 6;
const char* Name(BlockOwner owner);  // "free", "cached", ...

enum class PageOwner : uint8_t {
  kUnused,
  kNotReady,  // the ranks have not made it ready for copies yet
  kBacked,    // a copy of a block that is on the device too
  kCached,    // the only copy of KV that no session keeps
  kSession,   // the only copy of KV that an idle session keeps
  kCopying,   // a copy fills or reads it, or a snapshot reads it
};
inline constexpr size_t kNumPageOwners = 6;
const char* Name(PageOwner owner);  // "unused", "not_ready", ...

struct KvMap {
  // A larger pool has several blocks to a cell; the cell shows the owner of most of them.
  static constexpr int32_t kMaxCells = 2048;

  std::array<int32_t, kNumBlockOwners> blocks{};  // by BlockOwner; the null block is not counted
  std::array<int32_t, kNumPageOwners> pages{};    // by PageOwner
  int32_t reserved_blocks = 0;  // promised to requests; free, cached or of idle sessions
  int32_t blocks_per_cell = 1;
  int32_t pages_per_cell = 1;
  std::vector<BlockOwner> block_cells;  // in the order of block ids; the last may cover fewer
  std::vector<PageOwner> page_cells;    // in the order of page ids
};

}  // namespace quire
