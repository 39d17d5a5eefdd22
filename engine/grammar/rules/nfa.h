// Nfa: a nondeterministic automaton, and the subset construction that makes it deterministic.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/grammar/rules/automaton.h"

namespace quire {

struct Nfa {
  struct Edge {
    enum class Kind : uint8_t { kEmpty, kBytes, kCall };
    Kind kind;
    uint8_t first, last;  // of kBytes
    RuleId rule;          // of kCall
    uint32_t to;
  };

  uint32_t AddState() {
    edges.emplace_back();
    return static_cast<uint32_t>(edges.size() - 1);
  }
  void AddEmpty(uint32_t from, uint32_t to) {
    edges[from].push_back({Edge::Kind::kEmpty, 0, 0, 0, to});
  }
  void AddBytes(uint32_t from, uint8_t first, uint8_t last, uint32_t to) {
    edges[from].push_back({Edge::Kind::kBytes, first, last, 0, to});
  }
  void AddCall(uint32_t from, RuleId rule, uint32_t to) {
    edges[from].push_back({Edge::Kind::kCall, 0, 0, rule, to});
  }

  std::vector<std::vector<Edge>> edges;  // of each state
  uint32_t start = 0, accept = 0;
};

// Null once the meter is exceeded.
std::shared_ptr<const Automaton> Determinize(const Nfa& nfa, WorkMeter* meter);

}  // namespace quire
