// KeyFilter: says of most keys outside a set that they are not in it, from a sixteenth of the
// memory of a table of the set; so most lookups of such keys touch no table. Filled once, then only
// read; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

class KeyFilter {
 public:
  // Has room for `max_keys` keys: one bit of at least eight gets set.
  explicit KeyFilter(size_t max_keys)
      : shift_(64 - std::bit_width(std::max<size_t>(max_keys, 64) * 8 - 1)),
        words_((size_t{1} << (64 - shift_)) / 64) {}

  // `hash` is that of the key; its top bits must be well mixed.
  void Add(uint64_t hash) {
    const size_t bit = hash >> shift_;
    words_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  // False if no key with this hash was added.
  bool MayHave(uint64_t hash) const {
    const size_t bit = hash >> shift_;
    return (words_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  const int shift_;
  std::vector<uint64_t> words_;
};

}  // namespace quire
