// Rules are called in the order of their ranks, so that all who call a rule at one byte share one
// stack, and ambiguity costs no more than the sum of its ways.
#include "engine/grammar/places.h"

#include <algorithm>

namespace quire {

Place PlaceReader::Begin(RuleId rule, StackId stack) const {
  const Pushdown::Rule& called = table_.rules[rule];
  return {called.start, called.min, called.max, stack};
}

void PlaceReader::Add(const Place& place, Places* places) {
  constexpr size_t kShort = 32;  // places that are searched one by one
  auto& list = places->list;
  ++steps_;
  if (list.size() >= max_places_) return;
  if (list.size() < kShort) {
    if (std::find(list.begin(), list.end(), place) != list.end()) return;
  } else {
    steps_ += 10;
    if (seen_.empty()) seen_.insert(list.begin(), list.end());
    if (!seen_.insert(place).second) return;
  }
  list.push_back(place);
}

bool PlaceReader::MayEnd(const Place& place) const {
  const Pushdown::State& state = table_.states[place.state];
  const Pushdown::Rule& rule = table_.rules[state.rule];
  return rule.counted ? place.state == rule.start && place.need == 0 : state.accepts;
}

bool PlaceReader::MovesOn(const Place& place) const {
  const Pushdown::State& state = table_.states[place.state];
  const Pushdown::Rule& rule = table_.rules[state.rule];
  return state.moves && !(rule.counted && place.state == rule.start && place.room == 0);
}

void PlaceReader::AddCallsOf(const Place& place) {
  for (const Pushdown::CallEdge& call : table_.CallsOf(place.state)) {
    pending_.push_back({table_.rules[call.rule].rank, call.rule, {call.target, place.stack}});
  }
}

void PlaceReader::Call(Places* places) {
  pending_.clear();
  if (!seen_.empty()) seen_.clear();
  for (const Place& place : places->list) AddCallsOf(place);
  const auto later = [](const PendingCall& a, const PendingCall& b) { return a.rank > b.rank; };
  std::make_heap(pending_.begin(), pending_.end(), later);
  while (!pending_.empty()) {
    const RuleId rule = pending_.front().rule;
    returns_.clear();
    while (!pending_.empty() && pending_.front().rule == rule) {
      returns_.push_back(pending_.front().to);
      std::pop_heap(pending_.begin(), pending_.end(), later);
      pending_.pop_back();
    }
    steps_ += 10 * returns_.size();
    const Place place = Begin(rule, stacks_.Push(&returns_));
    Add(place, places);
    const size_t before = pending_.size();
    AddCallsOf(place);
    for (size_t n = before + 1; n <= pending_.size(); ++n) {
      std::push_heap(pending_.begin(), pending_.begin() + n, later);
    }
  }
}

void PlaceReader::Read(const Places& places, uint8_t byte, Places* out) {
  out->list.clear();
  if (!seen_.empty()) seen_.clear();
  out->complete = false;
  for (Place place : places.list) {
    const Pushdown::Rule& rule = table_.rules[table_.states[place.state].rule];
    const StateId next = table_.Next(place.state, byte);
    if (next == Pushdown::kDead || !MovesOn(place)) continue;
    if (rule.counted && place.state == rule.start) {
      place.need -= place.need > 0 ? 1 : 0;
      place.room -= place.room != Grammar::kUnbounded ? 1 : 0;
    }
    // The end of one counted text is the beginning of the next.
    place.state = rule.counted && table_.states[next].accepts ? rule.start : next;
    Add(place, out);
  }
  TakeReturns(out);
}

void PlaceReader::TakeReturns(Places* places) {
  steps_ += places->list.size();
  bool stuck = false;
  for (size_t i = 0; i < places->list.size(); ++i) {
    const Place place = places->list[i];
    stuck |= !MovesOn(place);
    if (!MayEnd(place)) continue;
    places->complete |= place.stack == Stacks::kBottom;
    for (const Return& to : stacks_.ReturnsOf(place.stack)) {
      Add({to.state, 0, 0, to.below}, places);
    }
  }
  if (!stuck) return;
  auto& list = places->list;
  list.erase(std::remove_if(list.begin(), list.end(),
                            [this](const Place& place) { return !MovesOn(place); }),
             list.end());
}

int64_t PlaceReader::CloseOf(const Place& place) const {
  const Pushdown::State& state = table_.states[place.state];
  const Pushdown::Rule& rule = table_.rules[state.rule];
  const int64_t part = table_.states[rule.start].close;
  if (rule.counted && part >= Pushdown::kNever) return Pushdown::kNever;
  int64_t close = rule.counted && place.state == rule.start ? 0 : state.close;
  if (rule.counted) close += place.need * part;
  return std::min(Pushdown::kNever, close + stacks_.CloseOf(place.stack));
}

int64_t PlaceReader::CloseOf(const Places& places) const {
  if (places.complete) return 0;
  int64_t close = Pushdown::kNever;
  for (const Place& place : places.list) close = std::min(close, CloseOf(place));
  return close;
}

}  // namespace quire
