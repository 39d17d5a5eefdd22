// Words to commands, flags and positionals; then each to its target.
#include "flags/parser.h"

#include <algorithm>
#include <map>
#include <optional>

#include "flags/nearest.h"

namespace quire::flags {
namespace {

constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

std::string Dashed(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

// Whether `name` is one of "a|b|c".
bool IsOneOf(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t bar = std::min(names.find('|'), names.size());
    if (names.substr(0, bar) == name) return true;
    names.remove_prefix(std::min(bar + 1, names.size()));
  }
  return false;
}

bool LooksLikeNumber(std::string_view word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '.' || (word[1] >= '0' && word[1] <= '9'));
}

const ForeignFlag* FindForeign(const Program& program, std::string_view name) {
  for (const ForeignFlag& foreign : program.foreign) {
    if (IsOneOf(foreign.names, Dashed(name))) return &foreign;
  }
  return nullptr;
}

const Command* FindCommand(const Command& parent, std::string_view name) {
  for (const Command& command : parent.commands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string PositionalLabel(const Flag& flag) {
  return flag.placeholder.empty() ? std::string(flag.name) : std::string(flag.placeholder);
}

// The first command of the program, beside the one given, that has a flag of this name: its path.
std::vector<const Command*> OtherOwner(const Program& program,
                                       const std::vector<const Command*>& path,
                                       std::string_view name) {
  for (const Command& command : program.root.commands) {
    const bool here = path.size() > 1 && path[1] == &command;
    if (!here && FindFlag({&command}, name) != nullptr) return {&program.root, &command};
  }
  return {};
}

class ArgumentReader {
 public:
  ArgumentReader(const Program& program, const std::vector<std::string>& words)
      : program_(program), words_(words) {
    line_.path.push_back(&program.root);
  }

  CommandLine Read() {
    bool flags_end = false;
    while (next_ < words_.size()) {
      const std::string& word = words_[next_];
      if (!flags_end && word == "--") {
        flags_end = true;
        ++next_;
      } else if (flags_end || !IsFlag(word)) {
        TakeWord();
      } else {
        TakeFlag();
      }
    }
    return std::move(line_);
  }

 private:
  bool IsFlag(const std::string& word) const {
    if (word.size() < 2 || word[0] != '-') return false;
    const bool expected = positional_ < line_.command().positionals.size();
    return !(LooksLikeNumber(word) && expected && FindFlag(line_.path, word.substr(1)) == nullptr);
  }

  // A command's name or a positional.
  void TakeWord() {
    const std::string& word = words_[next_++];
    const Command& command = line_.command();
    if (!command.commands.empty()) {
      if (const Command* found = FindCommand(command, word)) {
        line_.path.push_back(found);
      } else {
        NoSuchCommand(command, word);
      }
      return;
    }
    if (positional_ >= command.positionals.size()) {
      line_.faults.push_back("unexpected argument '" + word + "'" + HowMany(command));
      return;
    }
    const Flag& flag = command.positionals[positional_];
    if (!IsList(flag)) ++positional_;
    line_.given.push_back({std::string(flag.name), PositionalLabel(flag), word});
  }

  std::string HowMany(const Command& command) const {
    if (command.positionals.empty()) return ": " + CommandName(line_.path) + " takes flags only";
    std::string text = ": " + CommandName(line_.path) + " takes";
    for (const Flag& flag : command.positionals) text += " " + PositionalLabel(flag);
    if (command.takes_prose) text += "; put a text with spaces in quotes";
    return text;
  }

  void NoSuchCommand(const Command& command, const std::string& word) {
    next_ = words_.size();  // the rest belongs to the unknown command
    std::vector<NameChoice> choices;
    std::string all;
    for (const Command& known : command.commands) {
      choices.push_back({known.name, known.name});
      all += (all.empty() ? "" : ", ") + std::string(known.name);
    }
    const std::string nearest = NearestName(word, choices);
    line_.faults.push_back("'" + word + "' is no command of " + CommandName(line_.path) +
                           (nearest.empty() ? ": it has " + all : "; the nearest is " + nearest));
  }

  void TakeFlag() {
    const std::string& word = words_[next_++];
    const size_t start = word.find_first_not_of('-');
    const size_t equals = std::min(word.find('='), word.size());
    if (start == std::string::npos || start >= equals) {
      line_.faults.push_back("unexpected argument '" + word + "'");
      return;
    }
    Given given{.name = word.substr(start, equals - start), .where = {}, .text = {}};
    given.where = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals < word.size()) value = word.substr(equals + 1);
    if (TakeAction(given, value)) return;

    const Flag* flag = FindFlag(line_.path, given.name);
    if (flag == nullptr && start == 1 && !value) {
      const std::string rest = given.name.substr(1);
      const Flag* glued = FindFlag(line_.path, given.name.substr(0, 1));
      if (glued != nullptr && !IsSwitch(*glued)) {  // -n5
        flag = glued;
        given.where = word.substr(0, 2);
        given.name = std::string(glued->name);
        value = rest;
      }
    }
    TakeValue(flag, value, std::move(given));
  }

  void TakeValue(const Flag* flag, const std::optional<std::string>& value, Given given) {
    const Flag* negated = nullptr;
    if (given.name.starts_with("no-") || given.name.starts_with("no_")) {
      negated = FindFlag(line_.path, given.name.substr(3));
    }
    const ForeignFlag* foreign = flag == nullptr ? FindForeign(program_, given.name) : nullptr;
    const std::vector<const Command*> owner = OtherOwner(program_, line_.path, given.name);
    const bool others_switch =
        flag == nullptr && !owner.empty() && IsSwitch(*FindFlag(owner, given.name));
    if (flag != nullptr && IsSwitch(*flag)) {
      given.text = value ? *value : NextSwitchWord();
    } else if (flag == nullptr && negated != nullptr && IsSwitch(*negated) && !value) {
      given.name = std::string(negated->name);
      given.text = "false";
    } else if (value) {
      given.text = *value;
    } else if (others_switch) {
      given.text = "true";  // its command may follow
    } else if (foreign != nullptr && !foreign->takes_value) {
      if (next_ < words_.size() && IsOneOf("on|off|auto|true|false", words_[next_])) ++next_;
    } else if (next_ < words_.size() && !words_[next_].starts_with("--")) {
      given.text = words_[next_++];
    } else if (flag != nullptr) {
      line_.faults.push_back(given.where + " needs a value");
      return;
    }
    line_.given.push_back(given);
    if (flag == nullptr || !flag->many) return;
    while (next_ < words_.size() && !words_[next_].starts_with("-")) {
      given.text = words_[next_++];
      line_.given.push_back(given);
    }
  }

  // The value of a switch without "=".
  std::string NextSwitchWord() {
    if (line_.command().takes_prose || next_ == words_.size()) return "true";
    if (words_[next_] != "true" && words_[next_] != "false") return "true";
    return words_[next_++];
  }

  bool TakeAction(const Given& given, const std::optional<std::string>& value) {
    if (given.name == "help" || given.name == "h") {
      line_.action = Action::kHelp;
    } else if (given.name == "version" || given.name == "v") {
      if (line_.action == Action::kRun) line_.action = Action::kVersion;
    } else if (given.name == "help-man") {
      line_.action = Action::kManPage;
    } else if (given.name == "completion") {
      const std::string shell = value                   ? *value
                                : next_ < words_.size() ? words_[next_++]
                                                        : std::string();
      if (std::find(std::begin(kShells), std::end(kShells), shell) == std::end(kShells)) {
        line_.faults.push_back("--completion '" + shell + "': must be one of bash, zsh, fish");
        return true;
      }
      line_.action = Action::kCompletion;
      line_.shell = shell;
    } else {
      return false;
    }
    return true;
  }

  const Program& program_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
  size_t positional_ = 0;
  CommandLine line_;
};

std::string Unknown(const Program& program, const Given& given, Spelling spelling,
                    const CommandLine& line) {
  const std::vector<const Command*> owner = OtherOwner(program, line.path, given.name);
  if (!owner.empty()) {
    return given.where + " belongs to " + CommandName(owner);
  }
  std::vector<NameChoice> choices;
  for (const Command* command : line.path) {
    for (const Flag& flag : command->flags) {
      choices.push_back({flag.name, flag.name});
      for (std::string_view rest = flag.aliases; !rest.empty();) {
        const size_t bar = std::min(rest.find('|'), rest.size());
        choices.push_back({rest.substr(0, bar), flag.name});
        rest.remove_prefix(std::min(bar + 1, rest.size()));
      }
    }
  }
  const std::string nearest = NearestName(Dashed(given.name), choices);
  std::string sentence = given.where + " is no " + std::string(program.noun);
  if (line.path.size() > 1) sentence += " of " + CommandName(line.path);
  return nearest.empty() ? sentence : sentence + "; the nearest is " + spelling(nearest);
}

void Answer(const ForeignFlag& foreign, const Given& given, CommandLine* line) {
  const std::string sentence(foreign.sentence);
  switch (foreign.answer) {
    case ForeignFlag::Answer::kInstead:
      line->faults.push_back(given.where + ": Quire has " + sentence + " instead");
      return;
    case ForeignFlag::Answer::kNone:
      line->faults.push_back(given.where + ": Quire has none, because " + sentence);
      return;
    case ForeignFlag::Answer::kNoEffect:
      line->notices.push_back(given.where + " has no effect: " + sentence);
      return;
  }
}

const Flag* FindPositional(const Command& command, const Given& given) {
  for (const Flag& flag : command.positionals) {
    if (flag.name == given.name && PositionalLabel(flag) == given.where) return &flag;
  }
  return nullptr;
}

}  // namespace

std::string AsFlag(std::string_view name) { return "--" + std::string(name); }

std::string AsKey(std::string_view name) { return std::string(name); }

CommandLine ReadArguments(const Program& program, const std::vector<std::string>& arguments) {
  return ArgumentReader(program, arguments).Read();
}

std::set<std::string> Apply(const Program& program, const std::vector<Given>& given,
                            Spelling spelling, CommandLine* line) {
  std::map<std::string_view, std::string> seen;
  std::set<std::string> set;
  for (const Given& entry : given) {
    const Flag* flag = FindPositional(line->command(), entry);
    if (flag == nullptr) flag = FindFlag(line->path, entry.name);
    if (flag == nullptr) {
      const ForeignFlag* foreign = FindForeign(program, entry.name);
      if (foreign != nullptr) {
        Answer(*foreign, entry, line);
      } else {
        line->faults.push_back(Unknown(program, entry, spelling, *line));
      }
      continue;
    }
    if (IsOneOf(flag->aliases, Dashed(entry.name)) && entry.name != flag->short_name) {
      line->notices.push_back(entry.where + " is accepted; here it is called " +
                              std::string(flag->name));
    }
    const auto [first, inserted] = seen.emplace(flag->name, entry.where);
    if (!inserted && !IsList(*flag)) {
      line->faults.push_back(first->second == entry.where
                                 ? entry.where + " is given twice: give it once"
                                 : entry.where + " and " + first->second + " are the same " +
                                       std::string(program.noun) + ": give it once");
      continue;
    }
    if (inserted) ClearList(*flag);
    const absl::Status status = SetValue(*flag, entry.text);
    if (!status.ok()) {
      line->faults.push_back(entry.where + " '" + entry.text +
                             "': " + std::string(status.message()));
    }
    set.insert(std::string(flag->name));
    line->said.insert(std::string(flag->name));
  }
  return set;
}

void CheckRequired(CommandLine* line) {
  for (const Flag& flag : line->command().positionals) {
    if (!flag.required || line->Said(flag.name)) continue;
    line->faults.push_back(CommandName(line->path) + " needs " + PositionalLabel(flag) + ": " +
                           std::string(flag.help));
  }
}

const Flag* FindFlag(const std::vector<const Command*>& path, std::string_view name) {
  const std::string dashed = Dashed(name);
  if (dashed.empty()) return nullptr;
  for (size_t i = path.size(); i-- > 0;) {
    for (const Flag& flag : path[i]->flags) {
      if (flag.name == dashed || flag.short_name == dashed) return &flag;
    }
    for (const Flag& flag : path[i]->flags) {
      if (IsOneOf(flag.aliases, dashed)) return &flag;
    }
  }
  return nullptr;
}

std::string CommandName(const std::vector<const Command*>& path) {
  std::string name;
  for (const Command* command : path) {
    name += (name.empty() ? "" : " ") + std::string(command->name);
  }
  return name;
}

}  // namespace quire::flags
