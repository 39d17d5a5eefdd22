// One place for each word, which the last word there has.
#include "server/text/model/word_cache.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace quire {
namespace {

// The first `size` bytes from `p`, at most 8.
uint64_t Bytes(const char* p, size_t size) {
  if (size >= 8) {
    uint64_t out;
    std::memcpy(&out, p, 8);
    return out;
  }
  if (size >= 4) {
    uint32_t head, tail;
    std::memcpy(&head, p, 4);
    std::memcpy(&tail, p + size - 4, 4);
    return head | uint64_t{tail} << 32;
  }
  uint64_t out = 0;
  for (size_t i = 0; i < size; ++i) out = out << 8 | static_cast<uint8_t>(p[i]);
  return out;
}

}  // namespace

uint64_t WordCache::NewModel() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

WordCache& WordCache::OfThread(uint64_t model) {
  static thread_local WordCache cache;
  if (cache.model_ != model) {
    cache.slots_.assign(kSlots, Slot());
    cache.model_ = model;
  }
  return cache;
}

size_t WordCache::SlotOf(std::string_view word) {
  uint64_t mixed = word.size();
  for (size_t at = 0; at < word.size(); at += 8) {
    mixed = (mixed ^ Bytes(word.data() + at, word.size() - at)) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
  }
  static_assert(std::has_single_bit(kSlots));
  return (mixed * 0xD6E8FEB86659FD93u) >> (64 - std::countr_zero(kSlots));
}

std::span<const int32_t> WordCache::Find(std::string_view word) const {
  if (word.size() > kMaxBytes) return {};
  const Slot& slot = slots_[SlotOf(word)];
  const bool found =
      slot.size == word.size() && std::memcmp(slot.word.data(), word.data(), word.size()) == 0;
  return found ? std::span(slot.ids.data(), slot.num_ids) : std::span<const int32_t>();
}

void WordCache::Keep(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kMaxBytes || ids.size() > kMaxIds) return;
  Slot& slot = slots_[SlotOf(word)];
  slot.size = static_cast<uint8_t>(word.size());
  slot.num_ids = static_cast<uint8_t>(ids.size());
  std::memcpy(slot.word.data(), word.data(), word.size());
  std::ranges::copy(ids, slot.ids.begin());
}

}  // namespace quire
