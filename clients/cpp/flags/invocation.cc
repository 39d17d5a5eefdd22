// The table of `quire`, and the contradictions that no single row can see.
#include "clients/cpp/flags/invocation.h"

#include <utility>

#include "clients/cpp/flags/exit_codes.h"
#include "clients/cpp/flags/prompt_flags.h"
#include "clients/cpp/flags/session_flags.h"
#include "flags/help.h"
#include "flags/parser.h"
#include "version/build_facts.h"

namespace quire::cli {
namespace {

using flags::ForeignFlag;

constexpr char kNotes[] =
    "Numbers: 32k is 32000, 32K is 32768; times 250ms, 90s, 30m, 12h, 2d; shares 0.9 or 90%.\n"
    "Exit codes: 0 success; 1 a local failure (input, output, protocol); 2 a mistake on the "
    "command\n"
    "line; 6 the system refused memory or threads; 10 + the gRPC status code when the server or\n"
    "the connection said no (13 INVALID_ARGUMENT, 14 DEADLINE_EXCEEDED, 18 RESOURCE_EXHAUSTED, 24 "
    "UNAVAILABLE, ...); 130 interrupted.\n"
    "`quire COMMAND --help` shows the flags of a command. Flags of all commands may stand before "
    "or\nafter it.\n";

constexpr ForeignFlag kForeign[] = {
    {"host|port|url|base-url|endpoint", ForeignFlag::Answer::kInstead, true,
     "--server HOST:PORT or unix:PATH"},
    {"api-key|token", ForeignFlag::Answer::kInstead, true,
     "--api-key-file FILE, or the variable QUIRE_API_KEY, because a command line is no place for a "
     "secret:"},
    {"best-of|num-beams|beam-width", ForeignFlag::Answer::kNone, true,
     "a request has one answer: send it again with another --seed"},
    {"prompt|p", ForeignFlag::Answer::kInstead, true, "the prompt as TEXT: quire generate TEXT"},
    {"interactive|i|cnv", ForeignFlag::Answer::kInstead, false, "quire chat"},
};

struct Line {
  Invocation invocation;
  std::string shell;  // of `quire completion`
};

flags::Command AbortCommand(AbortFlags* abort) {
  return {.name = "abort",
          .help = "End live requests; their streams get CANCELLED.",
          .flags = {{.name = "all",
                     .group = "Flags",
                     .help = "end every live request",
                     .target = &abort->all}},
          .positionals = {{.name = "ids",
                           .group = {},
                           .help = "ids of requests to end",
                           .target = &abort->request_ids,
                           .placeholder = "ID"}}};
}

flags::Command DrainCommand(Invocation* i) {
  return {.name = "drain",
          .help = "Refuse new requests and let running ones finish.",
          .flags = {{.name = "exit-when-idle",
                     .group = "Flags",
                     .help = "then end the server",
                     .target = &i->exit_when_idle},
                    {.name = "undo",
                     .group = "Flags",
                     .help = "accept new requests again",
                     .target = &i->undo}}};
}

flags::Command FlushCommand(FlushFlags* flush) {
  return {.name = "flush",
          .help = "Drop the KV that no running request uses from the prefix cache.",
          .flags = {{.name = "sessions",
                     .group = "Flags",
                     .help = "drop that of idle sessions too; their next turns compute it again",
                     .target = &flush->sessions},
                    {.name = "tenant",
                     .group = "Flags",
                     .help = "drop the KV of this tenant alone",
                     .target = &flush->tenant,
                     .placeholder = "NAME",
                     .unset = "all tenants"}}};
}

flags::Command TraceCommand(TraceFlags* trace) {
  return {.name = "trace",
          .help =
              "Record what the server does for some seconds, as a file for ui.perfetto.dev, and "
              "print the time of a step by parts.",
          .flags = {{.name = "seconds",
                     .group = "Flags",
                     .help = "length of the recording, 0.1 to 60; default 2",
                     .target = &trace->seconds},
                    {.name = "out",
                     .group = "Flags",
                     .help = "file to write; - is stdout",
                     .target = &trace->out,
                     .placeholder = "FILE"},
                    {.name = "profile-steps",
                     .group = "Flags",
                     .help = "steps that attached profilers record (nsys "
                             "--capture-range=cudaProfilerApi)",
                     .target = &trace->profile_steps},
                    {.name = "uncaptured",
                     .group = "Flags",
                     .help = "run these steps without captured graphs, so that layers have names",
                     .target = &trace->uncaptured}}};
}

flags::Command MemoryCommand(Invocation* i) {
  return {.name = "memory",
          .help = "Print the memory plan, the KV of both tiers by owner, and its use over time.",
          .flags = {{.name = "watch",
                     .group = "Flags",
                     .help = "print a line a second until interrupted",
                     .target = &i->watch}}};
}

flags::Command CompletionCommand(std::string* shell) {
  return {.name = "completion",
          .help = "Print a completion script for a shell.",
          .flags = {},
          .positionals = {{.name = "shell",
                           .group = {},
                           .help = "bash, zsh or fish",
                           .target = shell,
                           .choices = "bash|zsh|fish",
                           .placeholder = "SHELL",
                           .required = true}}};
}

flags::Program QuireProgram(Line* line) {
  constexpr std::string_view kAll = "Flags of all commands";
  Invocation* i = &line->invocation;
  flags::Command root{.name = "quire",
                      .help = "Talks to a Quire server.",
                      .flags = {
                          connect::ServerRow(&i->connection, kAll),
                          {.name = "timeout",
                           .group = kAll,
                           .help = "deadline of each call; 0: the server's default",
                           .target = &i->timeout_seconds,
                           .unit = flags::Unit::kSeconds,
                           .highest = 1e9},
                          {.name = "model",
                           .group = kAll,
                           .help = "name of the served model",
                           .target = &i->model,
                           .placeholder = "NAME",
                           .unset = "the server's"},
                          {.name = "json",
                           .group = kAll,
                           .help = "print one JSON object for each frame or answer",
                           .target = &i->json},
                      }};
  for (flags::Flag& row : connect::ConnectionRows(&i->connection, "Connection of all commands")) {
    root.flags.push_back(std::move(row));
  }
  root.commands = {
      GenerateCommand(i),
      AttachCommand(i),
      ChatCommand(i),
      TokenizeCommand(i),
      DetokenizeCommand(i),
      ScoreCommand(&i->read),
      EmbedCommand(&i->read),
      SessionCommand(i),
      JobCommand(&i->job),
      {.name = "batch",
       .help = "Answer a file of requests, one a line, now.",
       .flags = {},
       .positionals = {{.name = "file",
                        .group = {},
                        .help = "file to read; '-': stdin",
                        .target = &i->batch_file,
                        .placeholder = "FILE",
                        .required = true}}},
      {.name = "info", .help = "Print the server, its model, load and memory plan.", .flags = {}},
      {.name = "health",
       .help = "Exit with 0 while the server takes requests and makes progress; print its state.",
       .flags = {}},
      MemoryCommand(i),
      AbortCommand(&i->abort),
      DrainCommand(i),
      FlushCommand(&i->flush),
      TraceCommand(&i->trace),
      KeyCommand(&i->key),
      CompletionCommand(&line->shell)};
  return {.root = std::move(root),
          .version = ThisBuild().version,
          .build = Describe(ThisBuild()),
          .notes = kNotes,
          .foreign = kForeign};
}

Command CommandOf(std::string_view name) {
  if (name == "generate") return Command::kGenerate;
  if (name == "attach") return Command::kAttach;
  if (name == "chat") return Command::kChat;
  if (name == "tokenize") return Command::kTokenize;
  if (name == "detokenize") return Command::kDetokenize;
  if (name == "score") return Command::kScore;
  if (name == "embed") return Command::kEmbed;
  if (name == "session") return Command::kSession;
  if (name == "job") return Command::kJob;
  if (name == "batch") return Command::kBatch;
  if (name == "info") return Command::kInfo;
  if (name == "health") return Command::kHealth;
  if (name == "abort") return Command::kAbort;
  if (name == "drain") return Command::kDrain;
  if (name == "flush") return Command::kFlush;
  if (name == "trace") return Command::kTrace;
  if (name == "memory") return Command::kMemory;
  if (name == "key") return Command::kKey;
  return Command::kNone;
}

bool AsksForScores(const GenerateFlags& flags) {
  return flags.top_logprobs || flags.prompt_logprobs || flags.processed_logprobs ||
         !flags.logprob_token_ids.empty();
}

std::string GenerateContradiction(const GenerateFlags& flags, bool json) {
  const PromptFlags& prompt = flags.prompt;
  const bool chat = prompt.chat || prompt.system || OfAChat(prompt.template_flags);
  if (!prompt.token_ids.empty() && (prompt.text || chat)) {
    return "--token-ids is the prompt: leave out TEXT, --chat, --system and what a template is "
           "told";
  }
  if (flags.logprobs && !json) {
    return "--logprobs needs --json, where each token's value is printed";
  }
  if (AsksForScores(flags) && !json) {
    return "--top-logprobs and the flags like it need --json, where scores are printed";
  }
  if (flags.print_ids && json) {
    return "--print-ids and --json exclude each other: JSON frames hold the ids anyway";
  }
  if (flags.expected_position && !flags.session) return "--expected-position needs --session";
  if (flags.detach_seconds.value_or(0) > 0 && !flags.stream) {
    return "--detach-seconds and --no-stream exclude each other: only a stream goes on";
  }
  if (!flags.prefix_cache && flags.session) {
    return "--no-prefix-cache and --session exclude each other: a session's KV is kept";
  }
  if (flags.session && prompt.template_flags.continue_final_message) {
    return "--continue-final-message and --session exclude each other: a turn adds a message";
  }
  if (flags.session && chat && (flags.print_ids || flags.keep_special_tokens)) {
    return "a chat in a session is sent again each turn, as plain text: leave out --print-ids and "
           "--keep-special-tokens";
  }
  return "";
}

// Contradictions between flags; empty when there is none.
std::string Contradiction(const Invocation& line) {
  if (line.command == Command::kGenerate) return GenerateContradiction(line.generate, line.json);
  if (line.command == Command::kChat && line.json) {
    return "quire chat prints text: use quire generate for --json";
  }
  if (line.command == Command::kAbort && line.abort.request_ids.empty() && !line.abort.all) {
    return "abort needs request ids, or --all";
  }
  if (line.command == Command::kAbort && !line.abort.request_ids.empty() && line.abort.all) {
    return "abort takes request ids or --all, not both";
  }
  const bool reads = line.command == Command::kScore || line.command == Command::kEmbed;
  if (reads && !line.read.token_ids.empty() && !line.read.texts.empty()) {
    return "--token-ids is the one item: leave out TEXT";
  }
  if (line.command == Command::kTrace && line.json && line.trace.out == "-") {
    return "--json and --out - exclude each other: both write to stdout";
  }
  if (line.command == Command::kTrace && line.trace.uncaptured && !line.trace.profile_steps) {
    return "--uncaptured is about the steps of --profile-steps";
  }
  if (line.command == Command::kDrain && line.exit_when_idle && line.undo) {
    return "--undo and --exit-when-idle exclude each other";
  }
  return "";
}

std::string Joined(const std::vector<flags::Command>& commands) {
  std::string names;
  for (size_t i = 0; i < commands.size(); ++i) {
    names += i == 0 ? "" : i + 1 == commands.size() ? " or " : ", ";
    names += commands[i].name;
  }
  return names;
}

ParsedLine Mistake(const std::vector<std::string>& faults, const std::string& command) {
  ParsedLine parsed;
  parsed.exit_code = kExitUsage;
  for (const std::string& fault : faults) parsed.err += "quire: " + fault + "\n";
  parsed.err += command + " --help lists the flags.\n";
  return parsed;
}

// Adds the fault of a command line that stops before its last command.
void CheckCommand(const flags::CommandLine& line, std::vector<std::string>* faults) {
  const flags::Command& command = line.command();
  if (command.commands.empty() || !faults->empty()) return;
  faults->push_back((line.path.size() == 1 ? "a command is required: "
                                           : std::string(command.name) + " needs a verb: ") +
                    Joined(command.commands));
}

}  // namespace

ParsedLine ParseInvocation(const std::vector<std::string>& args) {
  Line line;
  const flags::Program program = QuireProgram(&line);
  flags::CommandLine read = flags::ReadArguments(program, args);
  ParsedLine parsed;
  if (const std::optional<std::string> answer = flags::Answer(program, read)) {
    parsed.out = *answer;
    return parsed;
  }
  flags::Apply(program, read.given, flags::AsFlag, &read);
  flags::CheckRequired(&read);
  CheckCommand(read, &read.faults);
  Invocation& invocation = line.invocation;
  invocation.connection.said_tls = read.Said("tls");
  if (read.path.size() > 1) invocation.command = CommandOf(read.path[1]->name);
  if (read.path.size() > 2) {
    invocation.session.verb = invocation.job.verb = invocation.key.verb = read.path[2]->name;
  }
  if (invocation.command == Command::kChat) invocation.generate.prompt.chat = true;
  const std::string contradiction = Contradiction(invocation);
  if (read.faults.empty() && !contradiction.empty()) read.faults.push_back(contradiction);
  if (!read.faults.empty()) return Mistake(read.faults, flags::CommandName(read.path));
  if (!line.shell.empty()) {
    parsed.out = flags::Completion(program, line.shell);
    return parsed;
  }
  for (const std::string& notice : read.notices) parsed.err += "quire: " + notice + "\n";
  parsed.invocation = std::move(invocation);
  return parsed;
}

}  // namespace quire::cli
