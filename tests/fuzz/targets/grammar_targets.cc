// Fuzz targets of the grammar compiler: a grammar that compiles can be finished from everywhere.
#include <memory>
#include <string>
#include <vector>

#include "engine/grammar/compile_guide.h"
#include "kernels/check.h"
#include "tests/fuzz/targets/parser_targets.h"

namespace quire {
namespace {

std::shared_ptr<const GuideVocabulary> FuzzVocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"\": \"", "{\"", "\"}", "[[", "]]", "aa", "ab", "00", "\\u", "\n  "}) {
    tokens.emplace_back(word);
  }
  tokens.emplace_back();
  const auto eos = static_cast<int32_t>(tokens.size() - 1);
  return GuideVocabulary::Make(std::move(tokens), {eos}).value();
}

// Draws some tokens by a generator that the text seeds, then those that lead to an end.
void Walk(const CompiledGuide& guide, const GuideVocabulary& vocabulary, uint32_t seed) {
  constexpr int kFree = 6;
  constexpr int64_t kLongest = 2000;
  const auto row = guide.Start();
  std::vector<uint32_t> words(vocabulary.mask_words());
  for (int step = 0; !row->CanEnd() || step < kFree; ++step) {
    const int64_t to_close = row->TokensToClose();
    CHECK(to_close >= 0);
    if (to_close > kLongest) return;
    if (step >= kFree) row->SetBudget(to_close - 1);
    row->FillMask(words);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary.size(); ++token) {
      if ((words[token / 32] >> (token % 32) & 1) != 0) allowed.push_back(token);
    }
    CHECK(!allowed.empty());
    seed = seed * 1664525 + 1013904223;
    const int32_t token = allowed[(seed >> 8) % allowed.size()];
    CHECK(row->Accept(token));
    if (vocabulary.bytes(token).empty()) return;
    if (step >= kFree) CHECK(row->TokensToClose() < to_close);
  }
}

void FuzzGrammar(GrammarKind kind, std::string_view bytes) {
  static const auto& vocabulary = *new std::shared_ptr<const GuideVocabulary>(FuzzVocabulary());
  const GuideLimits limits = {.max_states = 2000, .max_rules = 200, .max_work = 1 << 19};
  const auto guide = CompileGuide({kind, std::string(bytes)}, vocabulary, limits);
  if (!guide.ok()) {
    CHECK(guide.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(!guide.status().message().empty());
    return;
  }
  uint32_t seed = 1;
  for (const char c : bytes) seed = seed * 31 + static_cast<uint8_t>(c);
  Walk(**guide, *vocabulary, seed);
}

}  // namespace

void FuzzRegex(std::string_view bytes) { FuzzGrammar(GrammarKind::kRegex, bytes); }
void FuzzGbnf(std::string_view bytes) { FuzzGrammar(GrammarKind::kGbnf, bytes); }
void FuzzLark(std::string_view bytes) { FuzzGrammar(GrammarKind::kLark, bytes); }
void FuzzJsonSchema(std::string_view bytes) { FuzzGrammar(GrammarKind::kJsonSchema, bytes); }

}  // namespace quire
