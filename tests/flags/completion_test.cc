// Completion: bash runs its script here; the others name every flag.
// Covers flags/completion.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "flags/help.h"

namespace quire::flags {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Toy {
  bool on = false;
  std::string word;
  int32_t number = 0;
  Program program;
  Toy() {
    Command inner{.name = "put",
                  .help = "Puts.",
                  .flags = {{.name = "far", .group = "G", .help = "it's far", .target = &on}}};
    program.root = {
        .name = "toy-box",
        .help = "Plays.",
        .flags = {{.name = "level",
                   .group = "G",
                   .help = "how loud",
                   .target = &word,
                   .choices = "low|high"}},
        .positionals = {},
        .commands = {
            {.name = "box", .help = "Boxes.", .flags = {}, .positionals = {}, .commands = {inner}},
            {.name = "count",
             .help = "Counts.",
             .flags = {{.name = "to", .group = "G", .help = "the end", .target = &number}}}}};
  }
};

// The words that bash offers for the last word of `line`.
std::string Offers(const std::string& line) {
  Toy toy;
  const std::string path = testing::TempDir() + "quire_completion.bash";
  std::ofstream(path) << Completion(toy.program, "bash") << "COMP_WORDS=(" << line
                      << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_toy_box\n"
                      << "echo \"${COMPREPLY[@]}\"\n";
  FILE* shell = popen(("bash -e " + path + " 2>&1").c_str(), "r");
  char text[4096] = {};
  const size_t size = fread(text, 1, sizeof text - 1, shell);
  EXPECT_EQ(pclose(shell), 0) << text;
  return std::string(text, size);
}

TEST(CompletionTest, BashOffersWhatMayStandNext) {
  EXPECT_EQ(Offers("toy-box c"), "count\n");
  EXPECT_EQ(Offers("toy-box --level ''"), "low high\n");
  EXPECT_EQ(Offers("toy-box --level h"), "high\n");
  EXPECT_EQ(Offers("toy-box box p"), "put\n");
  EXPECT_EQ(Offers("toy-box --level low box put --no-f"), "--no-far\n");
  EXPECT_EQ(Offers("toy-box count --t"), "--to\n");
  EXPECT_THAT(Offers("toy-box count --"), Not(HasSubstr("--far")));
}

TEST(CompletionTest, ZshAndFishNameEveryFlagAndCommand) {
  Toy toy;
  for (const char* shell : {"zsh", "fish"}) {
    const std::string script = Completion(toy.program, shell);
    for (const char* word : {"level", "low high", "box", "put", "far", "it'\\''s far", "count"}) {
      EXPECT_THAT(script, HasSubstr(word)) << shell;
    }
  }
}

}  // namespace
}  // namespace quire::flags
