// RankCounters: the figures of a rank that travel when they have changed.
#pragma once

#include <cstdint>

namespace quire {

struct RankCounters {
  // As in Heartbeat.
  uint64_t launched = 0;
  uint64_t finished = 0;
  uint64_t collectives = 0;
  int64_t ready_pages = 0;  // as in CopyRings

  bool operator==(const RankCounters&) const = default;
};

}  // namespace quire
