// MaskStore: keeps the mask parts of one grammar for all its rows. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
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
  std::shared_ptr<const MaskPart> Of(const Place& place, bool by_use) ABSL_LOCKS_EXCLUDED(mutex_);
  // The part that `before` leaves to a return to `state`.
  std::shared_ptr<const MaskPart> After(const MaskPart& before, StateId state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // State, need and room of a place; or state, and the id of the part before, which is not small.
  using Key = std::tuple<StateId, uint64_t, uint64_t>;

  std::shared_ptr<const MaskPart> Find(const Key& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const MaskPart> Keep(const Key& key, MaskPart part) ABSL_LOCKS_EXCLUDED(mutex_);

  const Pushdown& table_;
  const GuideVocabulary& vocabulary_;
  const size_t max_bytes_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Key, std::shared_ptr<const MaskPart>> parts_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = uint64_t{1} << 32;  // above every need
};

}  // namespace quire
