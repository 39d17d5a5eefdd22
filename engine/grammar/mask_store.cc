// Parts are made without the lock; of two made at once the first is kept.
#include "engine/grammar/mask_store.h"

#include <mutex>
#include <utility>

namespace quire {

std::shared_ptr<const MaskPart> MaskStore::Of(const Place& place, bool by_use) {
  const Key key = {place.state, place.need, place.room};
  if (auto part = Find(key)) return part;
  const Place unknown = {place.state, place.need, place.room, Stacks::kBottom};
  return Keep(key, MakeMaskPart(table_, vocabulary_, unknown, by_use));
}

std::shared_ptr<const MaskPart> MaskStore::After(const MaskPart& before, StateId state) {
  const Key key = {state, before.id, 0};
  if (auto part = Find(key)) return part;
  return Keep(key, MakeMaskPart(table_, vocabulary_, before.exits, state));
}

size_t MaskStore::bytes() const {
  std::shared_lock lock(mutex_);
  return bytes_;
}

std::shared_ptr<const MaskPart> MaskStore::Find(const Key& key) const {
  std::shared_lock lock(mutex_);
  const auto at = parts_.find(key);
  return at == parts_.end() ? nullptr : at->second;
}

std::shared_ptr<const MaskPart> MaskStore::Keep(const Key& key, MaskPart made) {
  std::unique_lock lock(mutex_);
  if (const auto at = parts_.find(key); at != parts_.end()) return at->second;
  if (bytes_ > max_bytes_) {
    parts_.clear();
    bytes_ = 0;
  }
  made.id = next_id_++;
  bytes_ += made.bytes() + sizeof(Key);
  return parts_[key] = std::make_shared<const MaskPart>(std::move(made));
}

}  // namespace quire
