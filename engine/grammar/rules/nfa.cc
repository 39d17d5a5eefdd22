// The subset construction: a state of the automaton is the set of states that the text may be in.
#include "engine/grammar/rules/nfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {
namespace {

using Kind = Nfa::Edge::Kind;
using StateSet = std::vector<uint32_t>;  // ascending

class SubsetConstruction {
 public:
  SubsetConstruction(const Nfa& nfa, WorkMeter* meter)
      : nfa_(nfa), meter_(*meter), seen_(nfa.edges.size()) {}

  std::shared_ptr<const Automaton> Run() {
    FindClasses();
    IdOf({nfa_.start});
    for (uint32_t at = 0; at < sets_.size(); ++at) {
      if (!AddRow(at)) return nullptr;
    }
    Trim(out_.get());
    return out_;
  }

 private:
  void FindClasses() {
    std::array<bool, 257> begins = {};
    for (const auto& edges : nfa_.edges) {
      for (const Nfa::Edge& edge : edges) {
        if (edge.kind == Kind::kBytes) begins[edge.first] = begins[edge.last + 1] = true;
      }
    }
    for (int byte = 1; byte < 256; ++byte) {
      out_->class_of[byte] =
          static_cast<uint8_t>(out_->class_of[byte - 1] + (begins[byte] ? 1 : 0));
    }
    targets_.resize(out_->num_classes());
  }

  // The states that are reached by empty edges, less the states that have nothing but such edges.
  StateSet Closure(const StateSet& from) {
    StateSet found, work;
    ++stamp_;
    const auto visit = [&](uint32_t state) {
      if (seen_[state] == stamp_) return;
      seen_[state] = stamp_;
      work.push_back(state);
    };
    for (const uint32_t state : from) visit(state);
    while (!work.empty()) {
      const uint32_t state = work.back();
      work.pop_back();
      bool kept = state == nfa_.accept;
      for (const Nfa::Edge& edge : nfa_.edges[state]) {
        if (edge.kind == Kind::kEmpty) visit(edge.to);
        kept |= edge.kind != Kind::kEmpty;
      }
      meter_.Spend(1 + nfa_.edges[state].size());
      if (kept) found.push_back(state);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  uint32_t IdOf(const StateSet& targets) {
    StateSet set = Closure(targets);
    const auto [at, is_new] = ids_.try_emplace(std::move(set), sets_.size());
    if (is_new) {
      sets_.push_back(at->first);
      const bool accepts = std::binary_search(at->first.begin(), at->first.end(), nfa_.accept);
      out_->states.push_back({.accepts = accepts});
    }
    return at->second;
  }

  bool AddRow(uint32_t at) {
    const StateSet set = sets_[at];
    for (StateSet& targets : targets_) targets.clear();
    std::map<RuleId, StateSet> calls;
    for (const uint32_t state : set) {
      for (const Nfa::Edge& edge : nfa_.edges[state]) {
        if (edge.kind == Kind::kCall) calls[edge.rule].push_back(edge.to);
        if (edge.kind != Kind::kBytes) continue;
        const int first = out_->class_of[edge.first], last = out_->class_of[edge.last];
        for (int c = first; c <= last; ++c) targets_[c].push_back(edge.to);
        meter_.Spend(1 + last - first);
      }
    }
    uint32_t id = Automaton::kDead;
    for (size_t c = 0; c < targets_.size(); ++c) {
      if (c == 0 || targets_[c] != targets_[c - 1]) {
        id = targets_[c].empty() ? Automaton::kDead : IdOf(targets_[c]);
      }
      out_->next.push_back(id);
    }
    for (const auto& [rule, targets] : calls) {
      const uint32_t target = IdOf(targets);
      out_->states[at].calls.push_back({rule, target});
    }
    return meter_.AddStates(1) && meter_.Spend(targets_.size());
  }

  const Nfa& nfa_;
  WorkMeter& meter_;
  std::shared_ptr<Automaton> out_ = std::make_shared<Automaton>();
  std::vector<StateSet> sets_;  // of each state of the automaton
  absl::flat_hash_map<StateSet, uint32_t> ids_;
  std::vector<uint32_t> seen_;  // of each state of the nfa: the last closure that met it
  uint32_t stamp_ = 0;
  std::vector<StateSet> targets_;  // of each class, while a row is made
};

}  // namespace

std::shared_ptr<const Automaton> Determinize(const Nfa& nfa, WorkMeter* meter) {
  return SubsetConstruction(nfa, meter).Run();
}

}  // namespace quire
