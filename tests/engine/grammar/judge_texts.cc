// Judges cases from standard input, as the scripts beside this file write them: a program for them.
// Prints each difference; exits with 1 if there is one. With --walks N it prints N texts drawn from
// the masks of each case, as lines [SOURCE, TEXT] of JSON.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>

#include "tests/engine/grammar/text_cases.h"

namespace quire {
namespace {

int PrintWalks(const nlohmann::json& cases, int count) {
  const auto vocabulary =
      ByteVocabulary({"\": ", "\", \"", "\":", "\",",      "{\"",      "\"}", "[[",   "]]",
                      "}}",   "00",     "12",  "aa",       "abc",      "\\n", "\\\"", "true",
                      "null", ".5",     "e+1", "\xC3\xA9", "\x80\x80", "-0",  "\n  "});
  std::mt19937 random(11);
  for (const auto& test : cases) {
    const auto guide = CompileGuide(SourceOf(test), vocabulary);
    if (!guide.ok()) continue;  // Differences reports it
    const int64_t shortest = (*guide)->Start()->TokensToClose();
    for (int i = 0; i < count; ++i) {
      const int64_t max_tokens = shortest + static_cast<int64_t>(random() % 100);
      const nlohmann::json line = {test["source"],
                                   RandomText(**guide, *vocabulary, max_tokens, &random)};
      std::cout << line.dump() << "\n";
    }
  }
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  const auto cases = quire::ParseJson(input, "input");
  if (!cases.ok()) {
    std::cerr << cases.status() << "\n";
    return 2;
  }
  if (argc == 3 && std::strcmp(argv[1], "--walks") == 0) {
    return quire::PrintWalks(*cases, std::atoi(argv[2]));
  }
  const int differences = quire::Differences(*cases, quire::ByteVocabulary());
  std::cout << differences << " differences\n";
  return differences == 0 ? 0 : 1;
}
