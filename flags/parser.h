// ReadArguments and Apply: a command line into values, with every fault named in one go. Two steps,
// so that --help wins over mistakes, and so that a file and the environment can be applied between.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "flags/program.h"

namespace quire::flags {

enum class Action : uint8_t { kRun, kHelp, kVersion, kManPage, kCompletion };

// One value as it was given.
struct Given {
  std::string name;   // without dashes or prefix
  std::string where;  // for messages: "--tp", "QUIRE_TP", "quire.json: tp", "PATH"
  std::string text;
};

struct CommandLine {
  Action action = Action::kRun;
  std::string shell;                 // of kCompletion: "bash", "zsh", "fish"
  std::vector<const Command*> path;  // the program's root, then the commands given
  std::vector<Given> given;          // flags and positionals, in order
  std::set<std::string> said;        // the flags' own names, once applied
  std::vector<std::string> faults;   // one sentence each
  std::vector<std::string> notices;  // accepted flags that have a better name, or no effect

  bool Said(std::string_view name) const { return said.contains(std::string(name)); }
  const Command& command() const { return *path.back(); }
};

// Splits `arguments` (without the program's name) into commands and values; sets no target. The
// result points into `program`.
CommandLine ReadArguments(const Program& program, const std::vector<std::string>& arguments);

// How a name is written where it came from: "--NAME", "QUIRE_NAME".
using Spelling = std::string (*)(std::string_view name);
std::string AsFlag(std::string_view name);
std::string AsKey(std::string_view name);  // the name itself

// Sets the targets of `given` among the flags of line->path. A list starts anew at its first value.
// Faults and notices go to the line: unknown names with the nearest valid one if there is a near
// one, foreign ones with their answer, values that are not accepted, anything given twice. Returns
// the names that were set.
std::set<std::string> Apply(const Program& program, const std::vector<Given>& given,
                            Spelling spelling, CommandLine* line);

// Adds a fault for each positional of the command that is required and was not given.
void CheckRequired(CommandLine* line);

// A flag of the command at the end of `path` or of one of its parents, by its name, short name or
// alias; underscores stand for dashes. Null: none.
const Flag* FindFlag(const std::vector<const Command*>& path, std::string_view name);

// "quire session create".
std::string CommandName(const std::vector<const Command*>& path);

}  // namespace quire::flags
