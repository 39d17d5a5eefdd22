// Automaton: a deterministic automaton over bytes and calls of rules, the body of one rule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace quire {

using RuleId = uint32_t;

// Deterministic: a byte, or a call, leads to one state. A state may have bytes and calls, so
// reading a byte may begin any of several calls.
struct Automaton {
  static constexpr uint32_t kDead = UINT32_MAX;
  struct CallEdge {
    RuleId rule;
    uint32_t target;  // after the rule
  };
  struct State {
    bool accepts = false;
    std::vector<CallEdge> calls;
  };

  size_t num_classes() const { return size_t{class_of[255]} + 1; }
  uint32_t Next(uint32_t state, uint8_t byte) const {
    return next[state * num_classes() + class_of[byte]];
  }
  bool HasMoves(uint32_t state) const;

  // Bytes of one class are alike to all states; classes ascend with the bytes.
  std::array<uint8_t, 256> class_of = {};
  std::vector<State> states;   // the first is the start
  std::vector<uint32_t> next;  // [states, classes]: a state or kDead
};

class WorkMeter;

// The texts of `a` that are texts of `b`, or with `except` those that are not; neither calls rules.
// Null once the meter is exceeded.
std::shared_ptr<const Automaton> Intersection(const Automaton& a, const Automaton& b, bool except,
                                              WorkMeter* meter);

// Removes the ways that lead to no accepting state.
void Trim(Automaton* automaton);

}  // namespace quire
