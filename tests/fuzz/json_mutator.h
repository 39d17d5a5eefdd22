// JsonMutator: valid JSON with values exchanged, taken away or doubled, so that it passes the
// parser and reaches the checks behind it. The same seed gives the same inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_seed.h"

namespace quire {

class JsonMutator {
 public:
  using json = nlohmann::json;

  // `seeds` are objects or arrays, at least one; `values` are what the format may take somewhere.
  JsonMutator(std::vector<json> seeds, std::vector<json> values, uint32_t seed)
      : seeds_(std::move(seeds)), values_(std::move(values)), random_(FuzzSeed(seed)) {
    const json edges = {nullptr, true, 0,  1,   -1,     2147483647, 2147483648,    9007199254740993,
                        1e300,   -0.5, "", "a", "../x", "\xC3\xA9", json::array(), json::object()};
    values_.insert(values_.end(), edges.begin(), edges.end());
  }

  // A seed with one to three edits.
  json Next() {
    json root = seeds_[Below(seeds_.size())];
    for (size_t edits = 1 + Below(3); edits > 0; --edits) Edit(&root);
    return root;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  void Edit(json* root) {
    json* parent = root;
    while (parent->is_structured() && !parent->empty() && Below(3) != 0) {
      json& child = *Member(parent);
      if (!child.is_structured() || child.empty()) break;
      parent = &child;
    }
    if (!parent->is_structured() || parent->empty()) {
      *parent = values_[Below(values_.size())];
      return;
    }
    const auto member = Member(parent);
    switch (Below(4)) {
      case 0: parent->erase(member); break;
      case 1:
        if (parent->is_array()) {
          parent->push_back(json(*member));
        } else {
          (*parent)[member.key() + "x"] = json(*member);
        }
        break;
      default: *member = values_[Below(values_.size())];
    }
  }
  json::iterator Member(json* parent) {
    auto member = parent->begin();
    std::advance(member, static_cast<std::ptrdiff_t>(Below(parent->size())));
    return member;
  }

  const std::vector<json> seeds_;
  std::vector<json> values_;
  std::mt19937 random_;
};

}  // namespace quire
