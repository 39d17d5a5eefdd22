// Dict: members by key, in the order of insertion, as in Python. Finding costs the same for any
// size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/text/jinja/values/value.h"

namespace quire::jinja {

class Dict {
 public:
  using Member = std::pair<Value, Value>;

  // nullptr if there is no such member. The pointer lives until the next Set.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Replaces or appends. False if `key` cannot be one (a list, a dict).
  bool Set(Value key, Value value);
  void Set(std::string_view key, Value value);

  size_t size() const { return members_.size(); }
  bool empty() const { return members_.empty(); }
  std::vector<Member>::const_iterator begin() const { return members_.begin(); }
  std::vector<Member>::const_iterator end() const { return members_.end(); }

 private:
  template <class Key>
  const Value* FindBy(const Key& key, size_t hash) const;

  std::vector<Member> members_;
  std::unordered_multimap<size_t, uint32_t> index_;  // positions by hash; empty while small
};

}  // namespace quire::jinja
