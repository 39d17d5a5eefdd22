// WordCache: the ids of words that a thread encoded before. Text repeats its words, and looking one
// up here touches one cache line, where its merges touch many of a large table. A word that is not
// kept, or that another one displaced, costs one comparison; so the time of a text stays linear
// whatever its words are. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/text/model/huge_pages.h"

namespace quire {

class WordCache {
 public:
  // A number of its own for each model: words of one are unknown to the others.
  static uint64_t NewModel();
  // The calling thread's cache, emptied if another model used it last. It has 2 MiB, which the
  // thread takes at its first call and keeps until it ends.
  static WordCache& OfThread(uint64_t model);

  // The ids of `word`, empty if it is not kept. Valid until the next Keep.
  std::span<const int32_t> Find(std::string_view word) const;
  // Keeps the ids of `word`, which Find did not know, unless either is too long. `ids` is not
  // empty.
  void Keep(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kSlots = 16384, kMaxBytes = 100, kMaxIds = 6;
  // Two cache lines, of which short words touch one.
  struct alignas(64) Slot {
    uint8_t size = 0;  // bytes of the word, 0: none
    uint8_t num_ids = 0;
    std::array<int32_t, kMaxIds> ids;
    std::array<char, kMaxBytes> word;
  };
  static_assert(sizeof(Slot) == 128);

  static size_t SlotOf(std::string_view word);

  uint64_t model_ = 0;
  std::vector<Slot, HugePages<Slot>> slots_;
};

}  // namespace quire
