// HelpText and ManPage: the layout, and that nothing of the table is left out.
#include "flags/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire::flags {
namespace {

using ::testing::HasSubstr;

struct Small {
  int32_t count = 5;
  bool loud = true;
  std::string path;
  Program program;
  Small() {
    program = {
        .root = {.name = "toy",
                 .help = "Plays.",
                 .flags = {{.name = "count",
                            .group = "Numbers",
                            .help = "times to play",
                            .target = &count,
                            .lowest = 1,
                            .highest = 9,
                            .aliases = "times",
                            .short_name = "n"},
                           {.name = "loud", .group = "Sound", .help = "be heard", .target = &loud}},
                 .positionals = {{.name = "path",
                                  .group = {},
                                  .help = "where",
                                  .target = &path,
                                  .placeholder = "PATH"}}},
        .version = "1.2",
        .notes = "Exit codes: 0.\n"};
  }
};

TEST(HelpTest, EveryRowIsTwoLinesOfItsGroup) {
  Small small;
  EXPECT_EQ(HelpText(small.program, {&small.program.root}),
            "Usage: toy [FLAG]... [PATH]\n"
            "Plays.\n"
            "  [PATH]                      where\n"
            "\nNumbers:\n"
            "  -n, --count N               times to play\n"
            "                              [5; 1 to 9]\n"
            "\nSound:\n"
            "  --[no-]loud                 be heard\n"
            "                              [true]\n"
            "\nAlso:\n"
            "  --help, --version           this text; the version\n"
            "  --completion SHELL          a completion script for bash, zsh or fish\n"
            "  --help-man                  the manual page\n"
            "\nExit codes: 0.\n");
}

TEST(HelpTest, TheVersionIsTheProgramsNameAndNumber) {
  Small small;
  CommandLine line;
  line.action = Action::kVersion;
  EXPECT_EQ(Answer(small.program, line), "toy 1.2\n");
  line.action = Action::kRun;
  EXPECT_FALSE(Answer(small.program, line).has_value());
}

TEST(ManPageTest, DashesAndLeadingDotsAreEscaped) {
  Small small;
  small.program.root.flags[0].help = ".5 is a half-time";
  const std::string page = ManPage(small.program);
  EXPECT_THAT(page, HasSubstr(".TH TOY 1 \"\" \"Quire 1.2\"\n"));
  EXPECT_THAT(page, HasSubstr(".B \\-n, \\-\\-count N\n\\&.5 is a half\\-time.\n[5; 1 to 9]\n"));
  EXPECT_THAT(page, HasSubstr("Also accepted: times.\n"));
}

}  // namespace
}  // namespace quire::flags
