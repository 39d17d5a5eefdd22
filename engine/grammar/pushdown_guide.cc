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
constexpr size_t kMaxPlaces = 32;
// While the bytes of a token are read: more than the parts of kMaxPlaces keep together, so that
// every token that a mask allows is accepted.
constexpr size_t kMaxPlacesWithin = 4096;
constexpr int kMaxParts = 256;  // of one mask

}  // namespace

class RowGuide : public TokenGuide {
 public:
  explicit RowGuide(std::shared_ptr<const PushdownGuide> guide)
      : guide_(std::move(guide)),
        table_(guide_->table_),
        vocabulary_(*guide_->vocabulary_),
        masks_(guide_->masks_),
        stacks_(table_),
        reader_(table_, &stacks_, kMaxPlacesWithin) {
    places_.list.push_back(reader_.Begin(table_.start, Stacks::kBottom));
    reader_.TakeReturns(&places_);
  }

  void FillMask(std::span<uint32_t> words) override {
    Fill(budget_, words);
    if (None(words) && !places_.complete) Fill(kNoLimit, words);
    if (None(words) && !places_.complete) AllowClosing(words);
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
    int parts = kMaxParts;
    for (const Place& place : places_.list) {
      // Counts beyond the longest token are alike but for the tokens that close them.
      const auto far = static_cast<uint32_t>(std::min<size_t>(
          vocabulary_.max_token_bytes() + 1, std::numeric_limits<uint32_t>::max()));
      const Place near = {place.state, std::min(place.need, far), std::min(place.room, far),
                          place.stack};
      const int64_t shift = reader_.CloseOf(place) - reader_.CloseOf(near);
      AddPart(*masks_.Of(near), shift + stacks_.CloseOf(place.stack), place.stack,
              {budget, words.data(), &parts});
    }
  }

  struct Target {
    int64_t budget;
    uint32_t* words;
    int* parts;  // that may still be added
  };

  // Adds the tokens of a part over `stack`, which takes `base` tokens to finish.
  void AddPart(const MaskPart& part, int64_t base, StackId stack, const Target& target) {
    if (--*target.parts < 0 || base >= Pushdown::kNever) return;
    for (const TokenGroup& group : part.groups) {
      if (group.close > target.budget - base) break;
      group.AddTo(target.words);
    }
    if (part.exits.empty()) return;
    for (const Return& to : stacks_.ReturnsOf(stack)) {
      AddPart(*masks_.After(part, to.state), stacks_.CloseOf(to.below), to.below, target);
    }
  }

  // The token that is certain to lead on to an end, where masks have dropped all others.
  void AllowClosing(std::span<uint32_t> words) const {
    const Place& nearest = *std::min_element(
        places_.list.begin(), places_.list.end(),
        [this](const Place& a, const Place& b) { return reader_.CloseOf(a) < reader_.CloseOf(b); });
    const int32_t token = table_.states[nearest.state].closing_token;
    words[token / 32] |= 1u << (token % 32);
  }

  void KeepNearest(Places* places) const {
    auto& list = places->list;
    list.erase(std::remove_if(list.begin(), list.end(),
                              [this](const Place& place) {
                                return reader_.CloseOf(place) >= Pushdown::kNever;
                              }),
               list.end());
    if (list.size() <= kMaxPlaces) return;
    std::stable_sort(list.begin(), list.end(), [this](const Place& a, const Place& b) {
      return reader_.CloseOf(a) < reader_.CloseOf(b);
    });
    list.resize(kMaxPlaces);
  }

  const std::shared_ptr<const PushdownGuide> guide_;
  const Pushdown& table_;
  const GuideVocabulary& vocabulary_;
  MaskStore& masks_;
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
