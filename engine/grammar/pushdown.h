// Pushdown: the automata of all rules in one table, with what it takes to finish from each state.
// A text is read by states and a stack of the states to return to. Immutable, any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/guide_vocabulary.h"
#include "engine/grammar/rules/grammar.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

using StateId = uint32_t;

struct Pushdown {
  static constexpr StateId kDead = Automaton::kDead;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

  struct CallEdge {
    RuleId rule;
    StateId target;  // where the text goes on after the rule
  };
  struct State {
    uint32_t row;         // of `next`
    uint32_t first_call;  // calls from here to the next state's
    RuleId rule;
    bool accepts;  // the rule may end here
    bool moves;    // bytes or calls go on from here
    // Tokens that suffice to end the rule, calls made included; kNever where the vocabulary has no
    // tokens that do. Of a counted rule: to end the part that has begun.
    int64_t close = kNever;
    int32_t closing_token = -1;  // the first of those tokens
  };
  struct Rule {
    StateId start;
    uint32_t rank;              // of callers below that of rules called before any byte
    bool counted = false;       // its texts are min to max texts of its automaton
    uint32_t min = 0, max = 0;  // max may be Grammar::kUnbounded
    int64_t close = kNever;     // tokens that suffice for a whole text
    std::bitset<256> follow;    // bytes that may come after it
    std::array<uint8_t, 256> class_of;
  };

  StateId Next(StateId state, uint8_t byte) const {
    const State& at = states[state];
    return next[at.row + rules[at.rule].class_of[byte]];
  }
  std::span<const CallEdge> CallsOf(StateId state) const {
    return std::span(calls).subspan(states[state].first_call,
                                    states[state + 1].first_call - states[state].first_call);
  }
  size_t bytes() const;

  std::vector<State> states;  // and one past the end
  std::vector<StateId> next;
  std::vector<CallEdge> calls;
  std::vector<Rule> rules;
  RuleId start = 0;
};

// The table of `start` and the rules it calls. INVALID_ARGUMENT if a rule can call itself before it
// has read a byte, if no text can be finished with the tokens of the vocabulary, or beyond a limit.
absl::StatusOr<Pushdown> MakePushdown(const Grammar& grammar, RuleId start,
                                      const GuideVocabulary& vocabulary, WorkMeter* meter);

}  // namespace quire
