// Program: the whole table of one program, as plain values: its flags, its commands, and the flags
// of other servers that it answers although it has none such.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flags/flag.h"

namespace quire::flags {

// A program, or one of its commands. Flags may stand before and behind the name of their command.
struct Command {
  std::string_view name;  // "quire-server"; of a command: "generate"
  std::string_view help;  // one line
  std::vector<Flag> flags;
  std::vector<Flag> positionals;  // in order; a list takes all words that are left
  std::vector<Command> commands;
  // Words here are free text, so that a switch takes no "true" or "false" behind it.
  bool takes_prose = false;
};

// A flag of another server's: known, and answered.
struct ForeignFlag {
  enum class Answer : uint8_t {
    kInstead,  // "--swap-space: Quire has ANSWER instead"
    kNone,     // "--seed: Quire has none, because ANSWER"
    kNoEffect  // accepted; the notice is "--trust-remote-code has no effect: ANSWER"
  };
  std::string_view names;  // "seed|random-seed"
  Answer answer = Answer::kNone;
  bool takes_value = false;
  std::string_view sentence;
};

struct Program {
  Command root;
  std::string_view version;              // "0.1.0"
  std::string build;                     // behind it in --version: "commit 1234, Release"
  std::string_view noun = "flag";        // of messages: "--bogus is no NOUN"
  std::string_view notes;                // below the flags in --help
  std::span<const ForeignFlag> foreign;  // lives as long as the program
};

}  // namespace quire::flags
