// RecyclingSet: an ordered set that reuses its nodes: inserting and erasing allocate nothing while
// the size stays within the reserved count. First element O(1), insert and erase O(log n). One
// thread.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "kernels/check.h"

namespace quire {

// Key is default-constructible, cheap to copy and ordered by <.
template <typename Key>
class RecyclingSet {
 public:
  using const_iterator = typename std::set<Key>::const_iterator;

  void Reserve(size_t count) {
    spare_.reserve(count);
    for (std::set<Key> one; spare_.size() < count;) {
      one.insert(Key());
      spare_.push_back(one.extract(one.begin()));
    }
  }

  // Requires that no equal key is present.
  void Insert(const Key& key) {
    if (spare_.empty()) {
      CHECK(set_.insert(key).second);
      return;
    }
    auto node = std::move(spare_.back());
    spare_.pop_back();
    node.value() = key;
    CHECK(set_.insert(std::move(node)).inserted);
  }

  // Requires that the key is present.
  void Erase(const Key& key) {
    auto node = set_.extract(key);
    CHECK(!node.empty());
    spare_.push_back(std::move(node));
  }

  bool Contains(const Key& key) const { return set_.contains(key); }
  // LowerBound: the first element that is not before `key`. UpperBound: the first after it.
  const_iterator LowerBound(const Key& key) const { return set_.lower_bound(key); }
  const_iterator UpperBound(const Key& key) const { return set_.upper_bound(key); }
  const_iterator begin() const { return set_.begin(); }
  const_iterator end() const { return set_.end(); }
  size_t size() const { return set_.size(); }
  bool empty() const { return set_.empty(); }

 private:
  std::set<Key> set_;
  std::vector<typename std::set<Key>::node_type> spare_;
};

}  // namespace quire
