// HelpText, ManPage, Completion: a program's description of itself, made of its table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags/parser.h"
#include "flags/program.h"

namespace quire::flags {

// The --help of the command at the end of `path`, whose targets hold the defaults.
std::string HelpText(const Program& program, const std::vector<const Command*>& path);

// "quire 0.1.0 (commit 0123456789ab, GNU 12.2.0, no CUDA, Release)", a line.
std::string VersionText(const Program& program);

// The whole program as a manual page of section 1, in troff's man macros.
std::string ManPage(const Program& program);

// A script for `shell` ("bash", "zsh" or "fish") that completes the program's commands, flags and
// words.
std::string Completion(const Program& program, const std::string& shell);

// The text for --help, --version, --help-man or --completion; nothing when the program is to run.
// Call it before Apply: the text shows the targets' values as defaults.
std::optional<std::string> Answer(const Program& program, const CommandLine& line);

// A flag as --help shows it: "-n, --max-tokens N", "--[no-]reflection".
std::string FlagLabel(const Flag& flag);
// "[default; accepted values]": the facts behind a flag's help.
std::string FlagFacts(const Flag& flag);

}  // namespace quire::flags
