// Completion scripts: the words that may follow each command, as a case of each shell's language.
#include <algorithm>

#include "flags/help.h"

namespace quire::flags {
namespace {

using Path = std::vector<const Command*>;

// Every command of the program with its parents, the program first.
void AddPaths(const Path& path, std::vector<Path>* paths) {
  paths->push_back(path);
  for (const Command& command : path.back()->commands) {
    Path child = path;
    child.push_back(&command);
    AddPaths(child, paths);
  }
}

std::vector<Path> AllPaths(const Program& program) {
  std::vector<Path> paths;
  AddPaths({&program.root}, &paths);
  return paths;
}

// "session create"; empty for the program itself.
std::string Words(const Path& path) {
  std::string words;
  for (size_t i = 1; i < path.size(); ++i) {
    words += (words.empty() ? "" : " ") + std::string(path[i]->name);
  }
  return words;
}

struct Entry {
  std::string word;
  std::string_view help;
};

// The words that may stand next: commands, words of the command's arguments, flags of the command
// and of its parents.
std::vector<Entry> Entries(const Path& path) {
  std::vector<Entry> entries;
  for (const Command& command : path.back()->commands) {
    entries.push_back({std::string(command.name), command.help});
  }
  for (const Flag& flag : path.back()->positionals) {
    for (const std::string& word : Choices(flag)) entries.push_back({word, flag.help});
  }
  for (size_t i = path.size(); i-- > 0;) {
    for (const Flag& flag : path[i]->flags) {
      entries.push_back({"--" + std::string(flag.name), flag.help});
      if (IsSwitch(flag)) entries.push_back({"--no-" + std::string(flag.name), flag.help});
    }
  }
  for (const char* word : {"--help", "--version"}) entries.push_back({word, "print it and end"});
  return entries;
}

// A shell function's name for the program.
std::string FunctionName(std::string_view program) {
  std::string name = "_";
  for (const char c : program) name += c == '-' ? '_' : c;
  return name;
}

// Finds the command that the words before the cursor have reached: lines of bash and zsh alike.
std::string CommandCase(const std::vector<Path>& paths) {
  std::string text = "    case \"$command/$word\" in\n";
  for (const Path& path : paths) {
    if (path.size() < 2) continue;
    const Path parent(path.begin(), path.end() - 1);
    text += "      \"" + Words(parent) + "/" + std::string(path.back()->name) + "\") command=\"" +
            Words(path) + "\" ;;\n";
  }
  return text + "      *) ;;\n    esac\n";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The words that a flag's value may be, as a case over the word before the cursor; `free` where any
// value is possible.
std::string ValueCase(const std::vector<Path>& paths, const std::string& free) {
  std::string text;
  std::vector<std::string_view> done;
  for (const Path& path : paths) {
    for (const Flag& flag : path.back()->flags) {
      if (IsSwitch(flag)) continue;
      if (std::find(done.begin(), done.end(), flag.name) != done.end()) continue;
      done.push_back(flag.name);
      text += "    --" + std::string(flag.name);
      if (!flag.short_name.empty()) text += "|-" + std::string(flag.short_name);
      text += ") " + (flag.choices.empty() ? free : "values='" + Joined(Choices(flag)) + "'");
      text += " ;;\n";
    }
  }
  return text;
}

std::string Bash(const Program& program) {
  const std::vector<Path> paths = AllPaths(program);
  const std::string function = FunctionName(program.root.name);
  std::string text = "# bash completion of " + std::string(program.root.name) + "\n" + function +
                     "() {\n"
                     "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "  local command= word= values= words=\n"
                     "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n" +
                     CommandCase(paths) +
                     "  done\n"
                     "  case \"$prev\" in\n" +
                     ValueCase(paths, "return") +
                     "    *) ;;\n"
                     "  esac\n"
                     "  if [ -n \"$values\" ]; then\n"
                     "    COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
                     "    return\n"
                     "  fi\n"
                     "  case \"$command\" in\n";
  for (const Path& path : paths) {
    std::vector<std::string> words;
    for (const Entry& entry : Entries(path)) words.push_back(entry.word);
    text += "    \"" + Words(path) + "\") words='" + Joined(words) + "' ;;\n";
  }
  return text +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "}\n"
         "complete -o default -F " +
         function + " " + std::string(program.root.name) + "\n";
}

// A help text between single quotes, where a colon would end zsh's word.
std::string Quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted;
}

std::string Zsh(const Program& program) {
  const std::vector<Path> paths = AllPaths(program);
  const std::string name(program.root.name);
  const std::string function = FunctionName(name);
  std::string text = "#compdef " + name + "\n" + function +
                     "() {\n"
                     "  local command= word= values=\n"
                     "  local -a entries\n"
                     "  for word in ${words[2,CURRENT-1]}; do\n" +
                     CommandCase(paths) +
                     "  done\n"
                     "  case \"${words[CURRENT-1]}\" in\n" +
                     ValueCase(paths, "_files; return") +
                     "    *) ;;\n"
                     "  esac\n"
                     "  if [[ -n $values ]]; then\n"
                     "    compadd -- ${=values}\n"
                     "    return\n"
                     "  fi\n"
                     "  case \"$command\" in\n";
  for (const Path& path : paths) {
    text += "    \"" + Words(path) + "\") entries=(\n";
    for (const Entry& entry : Entries(path)) {
      text += "      '" + entry.word + ":" + Quoted(entry.help) + "'\n";
    }
    text += "    ) ;;\n";
  }
  text += "  esac\n  _describe '" + name + "' entries || _files\n}\n";
  // zsh finds the file by its name and runs it at the first completion; else the file is sourced.
  return text + "if [[ ${funcstack[1]} == " + function + " ]]; then\n  " + function +
         " \"$@\"\nelse\n  compdef " + function + " " + name + "\nfi\n";
}

// Functions of fish: one prints the command that the words before the cursor have reached, one asks
// whether it is this command, one whether it is this command or below it.
std::string FishFunctions(const std::vector<Path>& paths, const std::string& prefix) {
  std::string text = "function " + prefix +
                     "_reached\n"
                     "  set -l reached\n"
                     "  for word in (commandline -opc)\n"
                     "    switch \"$reached/$word\"\n";
  for (const Path& path : paths) {
    if (path.size() < 2) continue;
    const Path parent(path.begin(), path.end() - 1);
    text += "      case '" + Words(parent) + "/" + std::string(path.back()->name) + "'\n";
    text += "        set reached '" + Words(path) + "'\n";
  }
  text +=
      "    end\n"
      "  end\n"
      "  echo $reached\n"
      "end\n";
  const auto question = [&](const std::string& name, const std::string& condition) {
    text += "function " + prefix + name + "\n";
    text += "  set -l reached (" + prefix + "_reached)\n  " + condition + "\nend\n";
  };
  question("_at", "test \"$reached\" = \"$argv[1]\"");
  question("_below", "string match -q -- \"$argv[1] *\" \"$reached \"");
  return text;
}

std::string Fish(const Program& program) {
  const std::string name(program.root.name);
  const std::vector<Path> paths = AllPaths(program);
  const std::string prefix = "_" + FunctionName(name), complete = "complete -c " + name;
  std::string text = "# fish completion of " + name + "\n" + FishFunctions(paths, prefix);
  for (const Path& path : paths) {
    const std::string words = complete + " -n '" + prefix + "_at \"" + Words(path) + "\"' -f -a ";
    for (const Command& command : path.back()->commands) {
      text += words + std::string(command.name) + " -d '" + Quoted(command.help) + "'\n";
    }
    for (const Flag& flag : path.back()->positionals) {
      if (flag.choices.empty()) continue;
      text += words + "'" + Joined(Choices(flag)) + "' -d '" + Quoted(flag.help) + "'\n";
    }
    const std::string flags = path.size() == 1
                                  ? complete
                                  : complete + " -n '" + prefix + "_below \"" + Words(path) + "\"'";
    for (const Flag& flag : path.back()->flags) {
      const std::string help = " -d '" + Quoted(flag.help) + "'\n";
      text += flags + " -l " + std::string(flag.name);
      if (!flag.short_name.empty()) text += " -s " + std::string(flag.short_name);
      if (!flag.choices.empty()) text += " -x -a '" + Joined(Choices(flag)) + "'";
      if (flag.choices.empty() && !IsSwitch(flag)) text += " -r";
      text += help;
      if (IsSwitch(flag)) text += flags + " -l no-" + std::string(flag.name) + help;
    }
  }
  for (const char* flag : {"help", "version"}) {
    text += complete + " -l " + flag + " -d 'print it and end'\n";
  }
  return text;
}

}  // namespace

std::string Completion(const Program& program, const std::string& shell) {
  if (shell == "zsh") return Zsh(program);
  return shell == "fish" ? Fish(program) : Bash(program);
}

}  // namespace quire::flags
