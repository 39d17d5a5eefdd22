// Writes --help and the manual page: the same facts in two layouts.
#include "flags/help.h"

#include <algorithm>

namespace quire::flags {
namespace {

constexpr size_t kLabelColumns = 30;

// A label, and the columns up to its help; a long one has a line of its own.
std::string Padded(std::string label) {
  if (label.size() + 2 > kLabelColumns) return label + "\n" + std::string(kLabelColumns, ' ');
  label.resize(kLabelColumns, ' ');
  return label;
}

std::string PositionalText(const Flag& flag) {
  std::string name =
      flag.placeholder.empty() ? std::string(flag.name) : std::string(flag.placeholder);
  if (IsList(flag)) name += "...";
  return flag.required ? name : "[" + name + "]";
}

std::string UsageLine(const std::vector<const Command*>& path) {
  std::string usage = CommandName(path) + " [FLAG]...";
  if (!path.back()->commands.empty()) usage += " COMMAND";
  for (const Flag& flag : path.back()->positionals) usage += " " + PositionalText(flag);
  return usage;
}

// The groups of a command's flags in the order of their first appearance.
std::vector<std::string_view> Groups(const Command& command) {
  std::vector<std::string_view> groups;
  for (const Flag& flag : command.flags) {
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) {
      groups.push_back(flag.group);
    }
  }
  return groups;
}

void AddFlags(const Command& command, std::string* text) {
  for (const std::string_view group : Groups(command)) {
    *text += "\n" + std::string(group) + ":\n";
    for (const Flag& flag : command.flags) {
      if (flag.group != group) continue;
      *text += Padded("  " + FlagLabel(flag)) + std::string(flag.help) + "\n";
      const std::string facts = FlagFacts(flag);
      if (!facts.empty()) *text += std::string(kLabelColumns, ' ') + facts + "\n";
    }
  }
}

// Troff reads a leading dot or quote as a macro, and a bare dash as a hyphen.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const bool line_start = escaped.empty() || escaped.back() == '\n';
    if (line_start && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '-') {
      escaped += "\\-";
    } else if (c == '\\') {
      escaped += "\\e";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Heading(std::string_view text) {
  std::string heading = ".SH ";
  for (const char c : text) heading += static_cast<char>(toupper(static_cast<unsigned char>(c)));
  return heading + "\n";
}

void AddManFlags(const Command& command, std::string* page) {
  for (const Flag& flag : command.flags) {
    *page += ".TP\n.B " + Escaped(FlagLabel(flag)) + "\n" + Escaped(flag.help) + ".\n";
    const std::string facts = FlagFacts(flag);
    if (!facts.empty()) *page += Escaped(facts) + "\n";
    if (!flag.aliases.empty()) {
      std::string names;
      for (const char c : flag.aliases) {
        names += c == '|' ? std::string(", ") : std::string(1, c);
      }
      *page += Escaped("Also accepted: " + names + ".") + "\n";
    }
  }
}

void AddManCommands(std::vector<const Command*> path, std::string* page) {
  for (const Command& command : path.back()->commands) {
    path.push_back(&command);
    *page += ".SS " + Escaped(UsageLine(path)) + "\n" + Escaped(command.help) + "\n";
    for (const Flag& flag : command.positionals) {
      *page += ".TP\n.I " + Escaped(PositionalText(flag)) + "\n" + Escaped(flag.help) + "\n";
    }
    AddManFlags(command, page);
    AddManCommands(path, page);
    path.pop_back();
  }
}

}  // namespace

std::string FlagLabel(const Flag& flag) {
  std::string label;
  if (!flag.short_name.empty()) label = "-" + std::string(flag.short_name) + ", ";
  label += IsSwitch(flag) ? "--[no-]" : "--";
  label += flag.name;
  const std::string placeholder = Placeholder(flag);
  if (!placeholder.empty()) label += " " + placeholder;
  if (flag.many) label += "...";
  return label;
}

std::string FlagFacts(const Flag& flag) {
  std::string facts = ValueText(flag);
  if (facts.empty()) facts = flag.unset;
  if (IsSwitch(flag)) return "[" + facts + "]";
  // The range of a type says nothing.
  const bool bounded = flag.lowest != 0 || flag.highest != 0 || !flag.choices.empty() ||
                       std::holds_alternative<TakeText>(flag.target);
  const std::string accepted = bounded ? AcceptedValues(flag) : "";
  if (!accepted.empty()) facts += (facts.empty() ? "" : "; ") + accepted;
  return facts.empty() ? "" : "[" + facts + "]";
}

std::string HelpText(const Program& program, const std::vector<const Command*>& path) {
  const Command& command = *path.back();
  std::string text = "Usage: " + UsageLine(path) + "\n" + std::string(command.help) + "\n";
  for (const Flag& flag : command.positionals) {
    text += Padded("  " + PositionalText(flag)) + std::string(flag.help) + "\n";
  }
  if (!command.commands.empty()) {
    text += "\nCommands:\n";
    for (const Command& child : command.commands) {
      text += Padded("  " + std::string(child.name)) + std::string(child.help) + "\n";
    }
  }
  for (size_t i = path.size(); i-- > 0;) AddFlags(*path[i], &text);
  text += "\nAlso:\n" + Padded("  --help, --version") + "this text; the version\n" +
          Padded("  --completion SHELL") + "a completion script for bash, zsh or fish\n" +
          Padded("  --help-man") + "the manual page\n";
  if (path.size() == 1 && !program.notes.empty()) text += "\n" + std::string(program.notes);
  return text;
}

std::string ManPage(const Program& program) {
  const Command& root = program.root;
  std::string name;
  for (const char c : root.name) name += static_cast<char>(toupper(static_cast<unsigned char>(c)));
  std::string page = ".TH " + name + " 1 \"\" \"Quire " + std::string(program.version) + "\"\n" +
                     Heading("Name") + Escaped(root.name) + " \\- " + Escaped(root.help) + "\n" +
                     Heading("Synopsis") + ".B " + Escaped(UsageLine({&root})) + "\n";
  for (const Flag& flag : root.positionals) {
    page += ".TP\n.I " + Escaped(PositionalText(flag)) + "\n" + Escaped(flag.help) + "\n";
  }
  if (!root.commands.empty()) {
    page += Heading("Commands");
    AddManCommands({&root}, &page);
  }
  for (const std::string_view group : Groups(root)) {
    Command part{.name = root.name, .help = {}, .flags = {}};
    for (const Flag& flag : root.flags) {
      if (flag.group == group) part.flags.push_back(flag);
    }
    page += Heading(group);
    AddManFlags(part, &page);
  }
  if (!program.notes.empty()) {
    page += Heading("Notes") + ".nf\n" + Escaped(program.notes) + ".fi\n";
  }
  return page;
}

std::string VersionText(const Program& program) {
  const std::string build = program.build.empty() ? "" : " (" + program.build + ")";
  return std::string(program.root.name) + " " + std::string(program.version) + build + "\n";
}

std::optional<std::string> Answer(const Program& program, const CommandLine& line) {
  switch (line.action) {
    case Action::kRun: return std::nullopt;
    case Action::kHelp: return HelpText(program, line.path);
    case Action::kVersion: return VersionText(program);
    case Action::kManPage: return ManPage(program);
    case Action::kCompletion: return Completion(program, line.shell);
  }
  return std::nullopt;
}

}  // namespace quire::flags
