// MaskStore: keeps the mask parts of one grammar for all its rows. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "engine/grammar/mask_part.h"

namespace quire {

class MaskStore {
 public:
  // The references outlive the store. Above max_bytes all parts are dropped and made again when
  // they are needed; a part that a caller holds stays.
  MaskStore(const Pushdown& table, const GuideVocabulary& vocabulary, size_t max_bytes)
      : table_(table), vocabulary_(vocabulary), max_bytes_(max_bytes) {}

  // The part of a place, whatever its stack. The first caller makes it: up to some milliseconds.
  // `by_use` as in MakeMaskPart; places that differ in it differ in their room as well.
  std::shared_ptr<const MaskPart> Of(const Place& place, bool by_use);
  // The part that `before` leaves to a return to `state`.
  std::shared_ptr<const MaskPart> After(const MaskPart& before, StateId state);
  size_t bytes() const;

 private:
  // State, need and room of a place; or state, and the id of the part before, which is not small.
  using Key = std::tuple<StateId, uint64_t, uint64_t>;

  std::shared_ptr<const MaskPart> Find(const Key& key) const;
  std::shared_ptr<const MaskPart> Keep(const Key& key, MaskPart part);

  const Pushdown& table_;
  const GuideVocabulary& vocabulary_;
  const size_t max_bytes_;
  mutable std::shared_mutex mutex_;  // guards what follows
  absl::flat_hash_map<Key, std::shared_ptr<const MaskPart>> parts_;
  size_t bytes_ = 0;
  uint64_t next_id_ = uint64_t{1} << 32;  // above every need
};

}  // namespace quire
