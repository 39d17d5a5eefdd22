// Products of automata, and the removal of dead ways.
#include "engine/grammar/rules/automaton.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {
namespace {

// Classes that are fine enough for both.
std::array<uint8_t, 256> Refine(const Automaton& a, const Automaton& b) {
  std::array<uint8_t, 256> classes = {};
  for (int byte = 1; byte < 256; ++byte) {
    const bool same =
        a.class_of[byte] == a.class_of[byte - 1] && b.class_of[byte] == b.class_of[byte - 1];
    classes[byte] = static_cast<uint8_t>(classes[byte - 1] + (same ? 0 : 1));
  }
  return classes;
}

}  // namespace

bool Automaton::HasMoves(uint32_t state) const {
  const auto row = next.begin() + state * num_classes();
  return !states[state].calls.empty() ||
         std::any_of(row, row + num_classes(), [](uint32_t to) { return to != kDead; });
}

std::shared_ptr<const Automaton> Intersection(const Automaton& a, const Automaton& b, bool except,
                                              WorkMeter* meter) {
  auto out = std::make_shared<Automaton>();
  out->class_of = Refine(a, b);
  std::vector<uint8_t> byte_of;  // one byte of each class
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 0 || out->class_of[byte] != out->class_of[byte - 1]) {
      byte_of.push_back(static_cast<uint8_t>(byte));
    }
  }
  // With `except` the second may be dead while the first goes on.
  std::vector<std::pair<uint32_t, uint32_t>> pairs = {{0, 0}};
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> ids = {{{0, 0}, 0}};
  for (uint32_t at = 0; at < pairs.size(); ++at) {
    const auto [left, right] = pairs[at];
    const bool in_b = right != Automaton::kDead && b.states[right].accepts;
    out->states.push_back({.accepts = a.states[left].accepts && in_b != except});
    if (!meter->AddStates(1) || !meter->Spend(byte_of.size())) return nullptr;
    for (const uint8_t byte : byte_of) {
      const uint32_t l = a.Next(left, byte);
      const uint32_t r = right == Automaton::kDead ? right : b.Next(right, byte);
      const bool dead = l == Automaton::kDead || (!except && r == Automaton::kDead);
      if (dead) {
        out->next.push_back(Automaton::kDead);
        continue;
      }
      const auto [id, is_new] = ids.try_emplace({l, r}, static_cast<uint32_t>(pairs.size()));
      if (is_new) pairs.push_back({l, r});
      out->next.push_back(id->second);
    }
  }
  Trim(out.get());
  return out;
}

void Trim(Automaton* automaton) {
  const size_t n = automaton->states.size(), classes = automaton->num_classes();
  std::vector<std::vector<uint32_t>> before(n);
  std::vector<uint32_t> work;
  std::vector<bool> live(n);
  for (uint32_t state = 0; state < n; ++state) {
    uint32_t last = Automaton::kDead;
    for (size_t c = 0; c < classes; ++c) {
      const uint32_t to = automaton->next[state * classes + c];
      if (to != Automaton::kDead && to != last) before[to].push_back(state);
      last = to;
    }
    for (const auto& call : automaton->states[state].calls) before[call.target].push_back(state);
    if (automaton->states[state].accepts) {
      live[state] = true;
      work.push_back(state);
    }
  }
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t from : before[state]) {
      if (!live[from]) work.push_back(from);
      live[from] = true;
    }
  }
  for (uint32_t& to : automaton->next) {
    if (to != Automaton::kDead && !live[to]) to = Automaton::kDead;
  }
  for (Automaton::State& state : automaton->states) {
    std::erase_if(state.calls, [&](const auto& call) { return !live[call.target]; });
  }
}

}  // namespace quire
