// A vector of members; above a few, an index by hash.
#include "server/text/jinja/values/dict.h"

#include <optional>
#include <string>

#include "absl/hash/hash.h"

namespace quire::jinja {
namespace {

constexpr size_t kMaxWithoutIndex = 8;

bool IsKey(const Value& key, std::string_view wanted) {
  return key.is_string() && key.string() == wanted;
}
bool IsKey(const Value& key, const Value& wanted) { return EqualItems(key, wanted); }

}  // namespace

template <class Key>
const Value* Dict::FindBy(const Key& key, size_t hash) const {
  if (index_.empty()) {
    for (const Member& member : members_) {
      if (IsKey(member.first, key)) return &member.second;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    const Member& member = members_[at->second];
    if (IsKey(member.first, key)) return &member.second;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  return FindBy(key, index_.empty() ? 0 : absl::HashOf(key));
}

const Value* Dict::Find(const Value& key) const {
  const std::optional<size_t> hash = HashOf(key);
  return hash.has_value() ? FindBy(key, *hash) : nullptr;
}

bool Dict::Set(Value key, Value value) {
  const std::optional<size_t> hash = HashOf(key);
  if (!hash.has_value()) return false;
  if (const Value* known = FindBy(key, *hash); known != nullptr) {
    *const_cast<Value*>(known) = std::move(value);
    return true;
  }
  members_.emplace_back(std::move(key), std::move(value));
  if (members_.size() <= kMaxWithoutIndex) return true;
  for (size_t i = index_.size(); i < members_.size(); ++i) {
    index_.emplace(*HashOf(members_[i].first), static_cast<uint32_t>(i));
  }
  return true;
}

void Dict::Set(std::string_view key, Value value) {
  Set(Value::Of(std::string(key)), std::move(value));
}

}  // namespace quire::jinja
