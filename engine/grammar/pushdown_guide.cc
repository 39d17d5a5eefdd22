// A row's mask is the union of the parts of its places, each followed through the stack as far as
// its tokens reach.
#include "engine/grammar/pushdown_guide.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/grammar/places.h"

namespace quire {
namespace {

// A grammar with more places after a token is so ambiguous that the farthest from an end are
// dropped.
constexpr size_t kMaxPlaces = 256;
// While the bytes of a token are read: more than the parts of a mask keep together, so that every
// token that a mask allows is accepted.
constexpr size_t kMaxPlacesWithin = 2048;
constexpr int kMaxParts = 1024;  // of one mask
// Of all parts of one mask, whether they are made now or were kept: a mask does not depend on what
// other rows have asked for.
constexpr int64_t kMaxSteps = 8 << 20;

}  // namespace

class RowGuide : public TokenGuide {
 public:
  explicit RowGuide(std::shared_ptr<const PushdownGuide> guide)
      : guide_(std::move(guide)),
        table_(guide_->table_),
        vocabulary_(*guide_->vocabulary_),
        masks_(guide_->masks_),
        far_(static_cast<uint32_t>(vocabulary_.max_token_bytes() + 1)),
        stacks_(table_),
        reader_(table_, &stacks_, kMaxPlacesWithin) {
    places_.list.push_back(reader_.Begin(table_.start, Stacks::kBottom));
    reader_.TakeReturns(&places_);
  }

  void FillMask(std::span<uint32_t> words) override {
    Fill(budget_, words);
    if (None(words) && !places_.complete) {
      // Either the budget is too small, or masks have dropped the places of the shortest way.
      if (TokensToClose() - 1 > budget_) Fill(kNoLimit, words);
      if (None(words)) AllowClosing(words);
    }
    if (places_.complete) {
      for (const int32_t id : vocabulary_.eos_ids()) words[id / 32] |= 1u << (id % 32);
    }
  }

  bool Accept(int32_t token) override {
    if (token < 0 || token >= vocabulary_.size()) return false;
    const auto eos = vocabulary_.eos_ids();
    if (std::find(eos.begin(), eos.end(), token) != eos.end()) return CanEnd();
    if (vocabulary_.bytes(token).empty()) return false;
    Places now = places_, next;
    for (const char c : vocabulary_.bytes(token)) {
      reader_.Call(&now);
      reader_.Read(now, static_cast<uint8_t>(c), &next);
      std::swap(now, next);
      if (now.dead()) return false;
    }
    KeepNearest(&now);
    if (now.dead()) return false;
    places_ = std::move(now);
    return true;
  }

  bool CanEnd() const override { return places_.complete; }
  int64_t TokensToClose() const override { return reader_.CloseOf(places_); }
  void SetBudget(int64_t tokens_left) override { budget_ = tokens_left; }

 private:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  static bool None(std::span<const uint32_t> words) {
    return std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; });
  }

  void Fill(int64_t budget, std::span<uint32_t> words) {
    std::fill(words.begin(), words.end(), 0);
    Effort effort;
    for (const Place& place : places_.list) {
      if (effort.parts <= 0 || effort.steps <= 0) return;
      // Counts beyond the longest token are alike, but for the tokens that close them. Nearer ones
      // share the masks of one that is far, which say how much of it each token uses.
      const bool is_near = place.room < far_ && IsCounted(place);
      const Place alike = {place.state, std::min(place.need, far_),
                           is_near ? 2 * far_ : std::min(place.room, far_), place.stack};
      const int64_t shift = reader_.CloseOf(place) - reader_.CloseOf(alike);
      AddPart(*masks_.Of(alike, is_near), shift + stacks_.CloseOf(place.stack), place.stack,
              {budget, is_near ? place.room : 0, words.data(), &effort});
    }
  }

  bool IsCounted(const Place& place) const {
    return table_.rules[table_.states[place.state].rule].counted;
  }

  // That a mask may still cost.
  struct Effort {
    int parts = kMaxParts;
    int64_t steps = kMaxSteps;
  };
  struct Target {
    int64_t budget;
    uint32_t room;  // for what groups use
    uint32_t* words;
    Effort* effort;
  };

  // Adds the tokens of a part over `stack`, which takes `base` tokens to finish.
  void AddPart(const MaskPart& part, int64_t base, StackId stack, const Target& target) {
    Effort& effort = *target.effort;
    if (base >= Pushdown::kNever || --effort.parts < 0) return;
    if ((effort.steps -= static_cast<int64_t>(part.steps)) < 0) return;
    for (const TokenGroup& group : part.groups) {
      if (group.close > target.budget - base) break;
      if (group.used <= target.room) group.AddTo(target.words);
    }
    if (part.exits.empty()) return;
    for (const Return& to : stacks_.ReturnsOf(stack)) {
      if (effort.parts <= 0 || effort.steps <= 0) return;
      AddPart(*masks_.After(part, to.state), stacks_.CloseOf(to.below), to.below, target);
    }
  }

  // Allows the first token of the shortest way to an end.
  void AllowClosing(std::span<uint32_t> words) const {
    const Place& nearest =
        *std::min_element(places_.list.begin(), places_.list.end(),
                          [this](const Place& a, const Place& b) { return IsNearer(a, b); });
    const int32_t token = table_.states[nearest.state].closing_token;
    words[token / 32] |= 1u << (token % 32);
  }

  // Of two places as near to an end, the one whose rule goes on is the nearer: a place where it may
  // end is only as near as those it returns to, which have places of their own.
  bool IsNearer(const Place& a, const Place& b) const {
    return std::pair(reader_.CloseOf(a), reader_.MayEnd(a)) <
           std::pair(reader_.CloseOf(b), reader_.MayEnd(b));
  }

  void KeepNearest(Places* places) const {
    auto& list = places->list;
    list.erase(std::remove_if(list.begin(), list.end(),
                              [this](const Place& place) {
                                return reader_.CloseOf(place) >= Pushdown::kNever;
                              }),
               list.end());
    if (list.size() <= kMaxPlaces) return;
    std::stable_sort(list.begin(), list.end(),
                     [this](const Place& a, const Place& b) { return IsNearer(a, b); });
    list.resize(kMaxPlaces);
  }

  const std::shared_ptr<const PushdownGuide> guide_;
  const Pushdown& table_;
  const GuideVocabulary& vocabulary_;
  MaskStore& masks_;
  const uint32_t far_;  // counts beyond what a token can use
  Stacks stacks_;
  PlaceReader reader_;
  Places places_;
  int64_t budget_ = kNoLimit;
};

PushdownGuide::PushdownGuide(Pushdown table, std::shared_ptr<const GuideVocabulary> vocabulary,
                             size_t max_mask_bytes)
    : table_(std::move(table)),
      vocabulary_(std::move(vocabulary)),
      masks_(table_, *vocabulary_, max_mask_bytes) {}

std::unique_ptr<TokenGuide> PushdownGuide::Start() const {
  return std::make_unique<RowGuide>(shared_from_this());
}

size_t PushdownGuide::bytes() const { return table_.bytes() + masks_.bytes(); }

}  // namespace quire
