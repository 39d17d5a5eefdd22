// Small vocabularies, and what a guide says of whole texts.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/compile_guide.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {

// All 256 bytes, then `words`, then EOS, which is the last id.
inline std::shared_ptr<const GuideVocabulary> ByteVocabulary(std::vector<std::string> words = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), words.begin(), words.end());
  tokens.emplace_back();
  const auto eos = static_cast<int32_t>(tokens.size() - 1);
  return GuideVocabulary::Make(std::move(tokens), {eos}).value();
}

inline std::shared_ptr<const CompiledGuide> Compile(
    const GrammarSource& source,
    std::shared_ptr<const GuideVocabulary> vocabulary = ByteVocabulary(),
    const GuideLimits& limits = {}) {
  auto guide = CompileGuide(source, std::move(vocabulary), limits);
  EXPECT_TRUE(guide.ok()) << guide.status() << "\n" << source.text;
  return guide.ok() ? *std::move(guide) : nullptr;
}

inline std::string CompileError(const GrammarSource& source, const GuideLimits& limits = {}) {
  const auto guide = CompileGuide(source, ByteVocabulary(), limits);
  EXPECT_EQ(guide.status().code(), absl::StatusCode::kInvalidArgument) << source.text;
  return std::string(guide.status().message());
}

// Whether `text`, byte by byte, is a whole text of the grammar.
inline bool Accepts(const CompiledGuide& guide, std::string_view text) {
  const auto row = guide.Start();
  for (const char c : text) {
    if (!row->Accept(static_cast<uint8_t>(c))) return false;
  }
  return row->CanEnd();
}

// The tokens that the mask allows; EOS is one of them.
inline std::vector<int32_t> Allowed(TokenGuide* row, const GuideVocabulary& vocabulary) {
  std::vector<uint32_t> words(vocabulary.mask_words());
  row->FillMask(words);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < static_cast<int32_t>(words.size() * 32); ++token) {
    if ((words[token / 32] >> (token % 32) & 1) != 0) tokens.push_back(token);
  }
  return tokens;
}

// A text drawn uniformly from the masks, within max_tokens.
inline std::string RandomText(const CompiledGuide& guide, const GuideVocabulary& vocabulary,
                              int64_t max_tokens, std::mt19937* random) {
  const auto row = guide.Start();
  EXPECT_LE(row->TokensToClose(), max_tokens);
  std::string text;
  for (int64_t left = max_tokens; left > 0; --left) {
    row->SetBudget(left - 1);
    const std::vector<int32_t> tokens = Allowed(row.get(), vocabulary);
    EXPECT_FALSE(tokens.empty());
    const int32_t token = tokens[(*random)() % tokens.size()];
    EXPECT_TRUE(row->Accept(token)) << text << " + " << vocabulary.bytes(token);
    EXPECT_LE(row->TokensToClose(), left - 1) << text;
    if (vocabulary.bytes(token).empty()) break;  // EOS
    text += vocabulary.bytes(token);
  }
  EXPECT_TRUE(row->CanEnd()) << text;
  return text;
}

}  // namespace quire
