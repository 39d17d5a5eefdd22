// CharIds: a map from code points to ids in two stages: pages of 256 code points, of which a
// vocabulary uses few. Filled once, then only read; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace quire {

class CharIds {
 public:
  CharIds() : ids_(256, -1) {}
  void Set(char32_t c, int32_t id) {
    uint16_t& page = page_of_[c >> 8];
    if (page == 0) {
      page = static_cast<uint16_t>(ids_.size() >> 8);
      ids_.resize(ids_.size() + 256, -1);
    }
    ids_[size_t{page} << 8 | (c & 0xFF)] = id;
  }
  // -1: none.
  int32_t Find(char32_t c) const { return ids_[size_t{page_of_[c >> 8]} << 8 | (c & 0xFF)]; }

 private:
  std::array<uint16_t, 0x1100> page_of_ = {};  // page 0 has no ids
  std::vector<int32_t> ids_;
};

}  // namespace quire
