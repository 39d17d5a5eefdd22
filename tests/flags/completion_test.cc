// Completion: bash runs its script here, as do zsh and fish where they are installed.
// Covers flags/completion.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
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
             .flags = {{.name = "to", .group = "G", .help = "the end", .target = &number}},
             .positionals = {{.name = "UNIT",
                              .group = "G",
                              .help = "what to count",
                              .target = &word,
                              .choices = "cats|dogs"}}}}};
  }
};

// A folder of this process.
std::string Folder() {
  const std::string folder = testing::TempDir() + "quire_completion_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  return folder;
}

// The output of `shell`, with its flags, for a script.
std::string OutputOf(const std::string& shell, const std::string& script) {
  const std::string path = Folder() + "/script";
  std::ofstream(path) << script;
  FILE* process = popen((shell + " " + path + " 2>&1").c_str(), "r");
  char text[4096] = {};
  const size_t size = fread(text, 1, sizeof text - 1, process);
  EXPECT_EQ(pclose(process), 0) << text;
  return std::string(text, size);
}

bool Installed(const std::string& shell) {
  return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0;
}

// The words that bash offers for the last word of `line`.
std::string Offers(const std::string& line) {
  Toy toy;
  return OutputOf("bash -e", Completion(toy.program, "bash") + "COMP_WORDS=(" + line +
                                 ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_toy_box\n" +
                                 "echo \"${COMPREPLY[@]}\"\n");
}

// The words that zsh chooses from for the last word of `line`, whatever its beginning. Functions of
// its line editor stand in for those that read the terminal.
std::string ZshChoices(const std::string& line) {
  Toy toy;
  return OutputOf("zsh -f",
                  "compdef() { }\n_files() { print files }\ncompadd() { print -r -- ${@[2,-1]} }\n"
                  "_describe() { print -r -- ${${(P)2}%%:*} }\n" +
                      Completion(toy.program, "zsh") + "words=(" + line +
                      ")\nCURRENT=${#words}\n_toy_box\n");
}

// The words that fish offers for the last word of `line`, without their help.
std::string FishOffers(const std::string& line) {
  Toy toy;
  const std::string empty = Folder() + "/empty";
  std::filesystem::create_directories(empty);
  return OutputOf("HOME=" + empty + " fish --no-config",
                  "cd " + empty + "\n" + Completion(toy.program, "fish") + "complete -C '" + line +
                      "' | string replace -r '\\t.*' '' | string join ' '\ntrue\n");
}

class CompletionTest : public testing::Test {
 protected:
  static void TearDownTestSuite() { std::filesystem::remove_all(Folder()); }
};

TEST_F(CompletionTest, BashOffersWhatMayStandNext) {
  EXPECT_EQ(Offers("toy-box c"), "count\n");
  EXPECT_EQ(Offers("toy-box --level ''"), "low high\n");
  EXPECT_EQ(Offers("toy-box --level h"), "high\n");
  EXPECT_EQ(Offers("toy-box box p"), "put\n");
  EXPECT_EQ(Offers("toy-box --level low box put --no-f"), "--no-far\n");
  EXPECT_EQ(Offers("toy-box count --t"), "--to\n");
  EXPECT_EQ(Offers("toy-box count d"), "dogs\n");
  EXPECT_EQ(Offers("toy-box count --to ''"), "\n");  // its value is the user's
  EXPECT_THAT(Offers("toy-box count --"), Not(HasSubstr("--far")));
}

TEST_F(CompletionTest, ZshOffersWhatMayStandNext) {
  if (!Installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  EXPECT_EQ(ZshChoices("toy-box c"), "box count --level --help --version\n");
  EXPECT_EQ(ZshChoices("toy-box --level ''"), "low high\n");
  EXPECT_EQ(ZshChoices("toy-box box p"), "put --level --help --version\n");
  EXPECT_THAT(ZshChoices("toy-box --level low box put --no-f"), HasSubstr("--far --no-far"));
  EXPECT_THAT(ZshChoices("toy-box count d"), HasSubstr("cats dogs --to"));
  EXPECT_EQ(ZshChoices("toy-box count --to ''"), "files\n");
}

// The first completion loads the file that zsh found by its name, and is served by it.
TEST_F(CompletionTest, ZshLoadsTheScriptAsAFunction) {
  if (!Installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  Toy toy;
  const std::string folder = Folder() + "/functions";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/_toy_box") << Completion(toy.program, "zsh");
  EXPECT_EQ(
      OutputOf("zsh -f", "fpath=(" + folder +
                             ")\nautoload -Uz _toy_box\ncompadd() { print -r -- ${@[2,-1]} }\n"
                             "words=(toy-box --level '')\nCURRENT=3\n_toy_box\n"),
      "low high\n");
}

TEST_F(CompletionTest, FishOffersWhatMayStandNext) {
  if (!Installed("fish")) GTEST_SKIP() << "fish is not installed";
  EXPECT_EQ(FishOffers("toy-box c"), "count\n");
  EXPECT_EQ(FishOffers("toy-box --level "), "high low\n");
  EXPECT_EQ(FishOffers("toy-box --level low c"), "count\n");
  EXPECT_EQ(FishOffers("toy-box box "), "put\n");
  EXPECT_EQ(FishOffers("toy-box box put p"), "");
  EXPECT_EQ(FishOffers("toy-box --level low box put --no-f"), "--no-far\n");
  EXPECT_EQ(FishOffers("toy-box count "), "cats dogs\n");
  EXPECT_THAT(FishOffers("toy-box count --"), Not(HasSubstr("--far")));
  EXPECT_THAT(FishOffers("toy-box count --"), HasSubstr("--version"));
}

TEST_F(CompletionTest, ZshAndFishNameEveryFlagAndCommand) {
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
