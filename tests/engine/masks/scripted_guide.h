// ScriptedGuide: a guide of tests, whose grammar is a finite automaton given as a table: the tokens
// that may come in each state, and the state that each leads to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/grammar/token_guide.h"

namespace quire {

struct GuideScript {
  // [state][token]: the next state.
  std::vector<std::map<int32_t, size_t>> moves;
  // With this many tokens left or fewer, masks keep to the token with the lowest id; -1: never.
  int64_t hurry_below = -1;
  // States whose text lacks a token.
  std::set<size_t> incomplete;

  // True if the tokens are a path from state 0.
  bool Holds(std::span<const int32_t> tokens) const {
    size_t state = 0;
    for (const int32_t token : tokens) {
      const auto move = moves[state].find(token);
      if (move == moves[state].end()) return false;
      state = move->second;
    }
    return true;
  }
};

class ScriptedGuide final : public TokenGuide {
 public:
  explicit ScriptedGuide(std::shared_ptr<const GuideScript> script) : script_(std::move(script)) {}

  void FillMask(std::span<uint32_t> words) override {
    for (uint32_t& word : words) word = 0;
    for (const auto& [token, next] : script_->moves[state_]) {
      words[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
      if (tokens_left_ <= script_->hurry_below) return;
    }
  }
  bool Accept(int32_t token) override {
    const auto move = script_->moves[state_].find(token);
    if (move == script_->moves[state_].end()) return false;
    state_ = move->second;
    return true;
  }
  bool CanEnd() const override { return script_->moves[state_].empty(); }
  int64_t TokensToClose() const override { return script_->incomplete.contains(state_) ? 1 : 0; }
  void SetBudget(int64_t tokens_left) override { tokens_left_ = tokens_left; }

 private:
  const std::shared_ptr<const GuideScript> script_;
  size_t state_ = 0;
  int64_t tokens_left_ = 0;
};

class ScriptedGrammar final : public CompiledGuide {
 public:
  explicit ScriptedGrammar(GuideScript script)
      : script_(std::make_shared<const GuideScript>(std::move(script))) {}

  std::unique_ptr<TokenGuide> Start() const override {
    return std::make_unique<ScriptedGuide>(script_);
  }
  size_t bytes() const override { return 1; }
  const GuideScript& script() const { return *script_; }

 private:
  const std::shared_ptr<const GuideScript> script_;
};

}  // namespace quire
