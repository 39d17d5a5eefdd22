// Judges cases from standard input, as the scripts beside this file write them: a program for them.
// Prints each difference; exits with 1 if there is one.
#include <iostream>
#include <iterator>

#include "tests/engine/grammar/text_cases.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  const auto cases = quire::ParseJson(input, "input");
  if (!cases.ok()) {
    std::cerr << cases.status() << "\n";
    return 2;
  }
  const int differences = quire::Differences(*cases, quire::ByteVocabulary());
  std::cout << differences << " differences\n";
  return differences == 0 ? 0 : 1;
}
