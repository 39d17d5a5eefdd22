// ReadArguments and Apply: which word becomes what, and a sentence for each mistake.
#include "flags/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace quire::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ForeignFlag kForeign[] = {
    {"seed|random-seed", ForeignFlag::Answer::kNone, true, "there is no chance here"},
    {"eager", ForeignFlag::Answer::kInstead, false, "--count 0"},
    {"trust", ForeignFlag::Answer::kNoEffect, false, "nothing is run"},
};

// A program with two commands; `say` takes prose, `box put` is one of two verbs.
struct Toy {
  int32_t count = 1;
  bool loud = false;
  std::optional<std::string> text, name;
  std::vector<std::string> tags, words;
  Program program;
  CommandLine line;

  Toy() {
    Command say{
        .name = "say",
        .help = "Says it.",
        .flags = {{.name = "loud", .group = "Say", .help = "cry", .target = &loud}},
        .positionals =
            {{.name = "text", .group = {}, .help = "what", .target = &text, .placeholder = "TEXT"}},
        .takes_prose = true};
    Command put{
        .name = "put",
        .help = "Puts.",
        .flags = {{.name = "tag", .group = "Put", .help = "tags", .target = &tags, .many = true}},
        .positionals = {{.name = "name",
                         .group = {},
                         .help = "the box",
                         .target = &name,
                         .placeholder = "NAME",
                         .required = true},
                        {.name = "words", .group = {}, .help = "things", .target = &words}}};
    Command take{.name = "take",
                 .help = "Takes.",
                 .flags = {{.name = "quick", .group = "Take", .help = "soon", .target = &loud}}};
    program.root = {.name = "toy",
                    .help = "Plays.",
                    .flags = {{.name = "count",
                               .group = "All",
                               .help = "times",
                               .target = &count,
                               .lowest = 0,
                               .highest = 9,
                               .aliases = "times|number",
                               .short_name = "n"}},
                    .positionals = {},
                    .commands = {say,
                                 {.name = "box",
                                  .help = "Boxes.",
                                  .flags = {},
                                  .positionals = {},
                                  .commands = {put, take}}}};
    program.foreign = kForeign;
  }

  std::vector<std::string> Run(const std::vector<std::string>& arguments) {
    line = ReadArguments(program, arguments);
    Apply(program, line.given, AsFlag, &line);
    CheckRequired(&line);
    return line.faults;
  }
};

TEST(ParserTest, FlagsStandBeforeAndAfterTheCommand) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--count", "3", "say", "hi"},
        {"say", "hi", "--count=3"},
        {"say", "-n", "3", "hi"},
        {"say", "-n3", "hi"},
        {"say", "hi", "--times", "3"}}) {
    Toy toy;
    EXPECT_THAT(toy.Run(words), IsEmpty());
    EXPECT_EQ(toy.count, 3);
    EXPECT_EQ(toy.text, "hi");
    EXPECT_EQ(CommandName(toy.line.path), "toy say");
  }
}

TEST(ParserTest, AnAliasIsNoticed) {
  Toy toy;
  EXPECT_THAT(toy.Run({"say", "--times", "3"}), IsEmpty());
  EXPECT_THAT(toy.line.notices, ElementsAre("--times is accepted; here it is called count"));
}

TEST(ParserTest, SwitchesBesideProseTakeNoWord) {
  Toy prose, verb;
  EXPECT_THAT(prose.Run({"say", "--loud", "false"}), IsEmpty());
  EXPECT_TRUE(prose.loud);
  EXPECT_EQ(prose.text, "false");
  verb.loud = true;
  EXPECT_THAT(verb.Run({"box", "take", "--quick", "false"}), IsEmpty());
  EXPECT_FALSE(verb.loud);
  EXPECT_THAT(verb.Run({"box", "take", "--no-quick"}), IsEmpty());
  EXPECT_FALSE(verb.loud);
}

TEST(ParserTest, AListTakesTheWordsUpToTheNextFlag) {
  Toy toy;
  EXPECT_THAT(toy.Run({"box", "put", "b", "--tag", "x", "y", "--count", "2", "--tag", "z"}),
              IsEmpty());
  EXPECT_THAT(toy.tags, ElementsAre("x", "y", "z"));
  EXPECT_THAT(toy.Run({"box", "put", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(toy.words, ElementsAre("c", "d"));
}

TEST(ParserTest, TwoDashesEndTheFlagsAndOneIsAWord) {
  Toy toy;
  EXPECT_THAT(toy.Run({"say", "--", "--count"}), IsEmpty());
  EXPECT_EQ(toy.text, "--count");
  EXPECT_THAT(toy.Run({"say", "-"}), IsEmpty());
  EXPECT_EQ(toy.text, "-");
  EXPECT_THAT(toy.Run({"say", "-5"}), IsEmpty());
  EXPECT_EQ(toy.text, "-5");
}

TEST(ParserTest, EveryMistakeHasItsSentence) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"sya"}, "'sya' is no command of toy; the nearest is say"},
      {{"box", "drop"}, "'drop' is no command of toy box: it has put, take"},
      {{"say", "a", "b"},
       "unexpected argument 'b': toy say takes TEXT; put a text with spaces in quotes"},
      {{"box", "take", "b"}, "unexpected argument 'b': toy box take takes flags only"},
      {{"say", "--count"}, "--count needs a value"},
      {{"say", "--count", "--loud"}, "--count needs a value"},
      {{"say", "--count", "x"}, "--count 'x': must be a whole number, 0 to 9"},
      {{"say", "-n", "1", "-n", "2"}, "-n is given twice: give it once"},
      {{"say", "-n", "1", "--count", "2"}, "--count and -n are the same flag: give it once"},
      {{"say", "--lod"}, "--lod is no flag of toy say; the nearest is --loud"},
      {{"say", "--bogus"}, "--bogus is no flag of toy say"},
      {{"box", "put"}, "toy box put needs NAME: the box"},
      {{"say", "---"}, "unexpected argument '---'"},
      {{"say", "--=5"}, "unexpected argument '--=5'"},
      {{"say", "--random-seed", "4"},
       "--random-seed: Quire has none, because there is no chance "
       "here"},
      {{"say", "--eager"}, "--eager: Quire has --count 0 instead"},
      {{"--completion", "tcsh"}, "--completion 'tcsh': must be one of bash, zsh, fish"},
  };
  for (const auto& [words, sentence] : mistakes) {
    Toy toy;
    EXPECT_THAT(toy.Run(words), ElementsAre(sentence)) << ::testing::PrintToString(words);
  }
}

TEST(ParserTest, AFlagOfAnotherCommandNamesIt) {
  Toy toy;
  EXPECT_THAT(toy.Run({"box", "take", "--loud"}), ElementsAre("--loud belongs to toy say"));
  EXPECT_THAT(toy.Run({"--loud", "say", "hi"}), IsEmpty());  // it may stand before its command
  EXPECT_TRUE(toy.loud);
}

TEST(ParserTest, WhatHasNoEffectIsANoticeAndTakesNoWord) {
  Toy toy;
  EXPECT_THAT(toy.Run({"say", "--trust", "hi"}), IsEmpty());
  EXPECT_EQ(toy.text, "hi");
  EXPECT_THAT(toy.line.notices, ElementsAre("--trust has no effect: nothing is run"));
}

TEST(ParserTest, HelpWinsOverMistakes) {
  Toy toy;
  EXPECT_EQ(ReadArguments(toy.program, {"say", "--bogus", "--help"}).action, Action::kHelp);
  EXPECT_EQ(ReadArguments(toy.program, {"--version", "--help"}).action, Action::kHelp);
  EXPECT_EQ(ReadArguments(toy.program, {"-v"}).action, Action::kVersion);
  const CommandLine line = ReadArguments(toy.program, {"--completion", "zsh"});
  EXPECT_EQ(line.action, Action::kCompletion);
  EXPECT_EQ(line.shell, "zsh");
}

TEST(ParserTest, ALaterSourceReplacesAList) {
  Toy toy;
  CommandLine line = ReadArguments(toy.program, {"box", "put", "b", "--tag", "x"});
  Apply(toy.program, {{"tag", "file: tag", "old"}}, AsKey, &line);
  Apply(toy.program, line.given, AsFlag, &line);
  EXPECT_THAT(toy.tags, ElementsAre("x"));
  EXPECT_TRUE(line.Said("tag"));
  EXPECT_FALSE(line.Said("count"));
}

}  // namespace
}  // namespace quire::flags
