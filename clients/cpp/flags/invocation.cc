// The flags of `quire`: the place where their names and help texts are written, but for those of
// `quire session`.
#include "clients/cpp/flags/invocation.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>

#include "absl/strings/numbers.h"
#include "clients/cpp/flags/exit_codes.h"
#include "clients/cpp/flags/session_flags.h"

namespace quire::cli {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 success; 1 a local failure (input, output, protocol); 2 a mistake on the "
    "command\n"
    "line; 10 + the gRPC status code when the server or the connection said no (13 "
    "INVALID_ARGUMENT,\n"
    "14 DEADLINE_EXCEEDED, 18 RESOURCE_EXHAUSTED, 24 UNAVAILABLE, ...); 130 interrupted.\n"
    "`quire COMMAND --help` shows the flags of a command; --server, --timeout, --model and --json "
    "may\n"
    "stand before or after the command.";

// Whole numbers from 0 on: T is an optional of one or a vector. CLI11 alone takes -1 for a large
// number, a large one for the largest, and an empty word for none at all.
template <typename T>
CLI::Option* AddCount(CLI::App* app, const char* name, T* value, const char* help) {
  return app->add_option(name, *value, help)->check([](const std::string& word) -> std::string {
    typename T::value_type number = 0;
    if (absl::SimpleAtoi(word, &number)) return "";
    constexpr auto kLargest = std::numeric_limits<typename T::value_type>::max();
    return "must be a whole number from 0 to " + std::to_string(kLargest) + ", not '" + word + "'";
  });
}

// A list that never swallows the words after it: one value a flag, or several with commas.
CLI::Option* AddIdList(CLI::App* app, const char* name, std::vector<uint32_t>* list,
                       const char* help) {
  return AddCount(app, name, list, help)->delimiter(',')->allow_extra_args(false);
}

void AddPrompt(CLI::App* app, PromptFlags* flags) {
  CLI::Option* text =
      app->add_option("text", flags->text, "The prompt; read from stdin when absent or '-'");
  app->add_flag("--chat", flags->chat, "The text is a user message for the model's chat template");
  app->add_option("--system", flags->system, "A system message before it; implies --chat");
  app->add_flag("--no-special-tokens", flags->no_special_tokens,
                "Do not add BOS and the like to the text");
  text->option_text("TEXT");
}

void AddSampling(CLI::App* app, SamplingFlags* flags) {
  const char* group = "Sampling (unset: the model's or the server's default)";
  app->add_option("--temperature", flags->temperature, "0 is greedy; up to 100")->group(group);
  AddCount(app, "--top-k", &flags->top_k, "Keep the k most likely tokens; 0 is off")->group(group);
  app->add_option("--top-p", flags->top_p, "Keep the likeliest tokens up to this sum, (0, 1]")
      ->group(group);
  app->add_option("--min-p", flags->min_p,
                  "Keep tokens this likely relative to the top one, [0, 1]")
      ->group(group);
  app->add_option("--repetition-penalty", flags->repetition_penalty, "[0.01, 10]; 1 is off")
      ->group(group);
  app->add_option("--presence-penalty", flags->presence_penalty, "[-2, 2]; 0 is off")->group(group);
  app->add_option("--frequency-penalty", flags->frequency_penalty, "[-2, 2]; 0 is off")
      ->group(group);
  AddCount(app, "--seed", &flags->seed, "The same seed gives the same tokens")->group(group);
  app->add_option("--logit-bias", flags->logit_bias, "ID=VALUE, repeatable; value in [-100, 100]")
      ->allow_extra_args(false)
      ->group(group);
}

void AddStop(CLI::App* app, StopFlags* flags) {
  const char* group = "Where to stop";
  AddCount(app, "-n,--max-tokens", &flags->max_tokens, "Output tokens at most")->group(group);
  AddCount(app, "--min-tokens", &flags->min_tokens, "No end before this many output tokens")
      ->group(group);
  app->add_option("--stop", flags->stop, "End when the text contains this; repeatable")
      ->allow_extra_args(false)
      ->group(group);
  AddIdList(app, "--stop-token-ids", &flags->stop_token_ids, "End at one of these ids: 1,2,3")
      ->group(group);
  app->add_flag("--include-stop", flags->include_stop, "Keep the matched stop string in the text")
      ->group(group);
  app->add_flag("--ignore-eos", flags->ignore_eos, "Do not end at the model's own end tokens")
      ->group(group);
}

void AddGenerate(CLI::App* app, GenerateFlags* flags) {
  AddPrompt(app, &flags->prompt);
  AddIdList(app, "--token-ids", &flags->prompt.token_ids, "Prompt as token ids: 1,2,3")
      ->excludes("text")
      ->excludes("--chat")
      ->excludes("--system");
  app->add_option("--request-id", flags->request_id, "A name to `quire abort` it by");
  app->add_option("--priority", flags->priority, "[-100, 100]; higher runs first");
  app->add_option(
         "--session", flags->session,
         "A turn of this session, made if there is none; without TEXT each line of stdin is "
         "a turn")
      ->option_text("NAME");
  AddCount(app, "--expected-position", &flags->expected_position,
           "Fail unless the session has so many tokens")
      ->needs("--session");
  app->add_flag("--no-prefix-cache", flags->no_prefix_cache,
                "Neither use nor leave anything in the prefix cache")
      ->excludes("--session");
  app->add_flag("--print-ids", flags->print_ids, "Print token ids instead of text");
  app->add_flag("--keep-special-tokens", flags->keep_special_tokens,
                "Leave special tokens in the text");
  app->add_flag("--logprobs", flags->logprobs, "Log probability of each token (in --json)");
  app->add_flag("--no-stream", flags->no_stream, "Wait for the whole answer (GenerateUnary)");
  app->add_flag("--stats", flags->stats, "Tokens per second and time to first token, to stderr");
  AddSampling(app, &flags->sampling);
  AddStop(app, &flags->stop);
}

void AddTokens(CLI::App* app, Invocation* line) {
  CLI::App* tokenize = app->add_subcommand("tokenize", "Print the token ids of a text");
  AddPrompt(tokenize, &line->tokenize.prompt);
  tokenize->add_flag("--offsets", line->tokenize.offsets, "One line a token: id, begin, end byte");
  CLI::App* detokenize = app->add_subcommand("detokenize", "Print the text of token ids");
  AddCount(detokenize, "ids", &line->detokenize.token_ids, "Token ids; read from stdin when absent")
      ->delimiter(',');
  detokenize->add_flag("--keep-special-tokens", line->detokenize.keep_special_tokens,
                       "Leave special tokens in the text");
}

void AddControl(CLI::App* app, Invocation* line) {
  app->add_subcommand("info", "Print what the server is, its model, load and memory plan");
  CLI::App* abort = app->add_subcommand("abort", "End live requests; their streams get CANCELLED");
  CLI::Option* ids = abort->add_option("request_ids", line->abort.request_ids, "Ids to end");
  abort->add_flag("--all", line->abort.all, "Every live request")->excludes(ids);
  CLI::App* drain = app->add_subcommand("drain", "Refuse new requests and let running ones finish");
  CLI::Option* exit =
      drain->add_flag("--exit-when-idle", line->exit_when_idle, "The server then exits");
  drain->add_flag("--undo", line->undo, "Accept new requests again")->excludes(exit);
}

void AddShared(CLI::App* app, Invocation* line) {
  app->add_option("--server", line->server, "host:port or unix:PATH")->capture_default_str();
  app->add_option("--timeout", line->timeout_seconds, "Seconds; 0: the server's default")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--model", line->model, "A served model's name");
  app->add_flag("--json", line->json, "One JSON object per frame or answer");
}

Command CommandOf(const std::string& name) {
  if (name == "generate") return Command::kGenerate;
  if (name == "tokenize") return Command::kTokenize;
  if (name == "detokenize") return Command::kDetokenize;
  if (name == "session") return Command::kSession;
  if (name == "info") return Command::kInfo;
  if (name == "abort") return Command::kAbort;
  if (name == "drain") return Command::kDrain;
  return Command::kNone;
}

// What the flags' own types cannot say; empty when all is well.
std::string Contradiction(const Invocation& line) {
  if (line.command == Command::kGenerate && line.generate.logprobs && !line.json) {
    return "--logprobs needs --json, where each token's value is printed";
  }
  if (line.command == Command::kGenerate && line.generate.print_ids && line.json) {
    return "--print-ids and --json exclude each other: JSON frames hold the ids anyway";
  }
  const bool chat_session = line.generate.session &&
                            (line.generate.prompt.chat || line.generate.prompt.system.has_value());
  if (chat_session && (line.generate.print_ids || line.generate.keep_special_tokens)) {
    return "a chat in a session is sent again each turn, as plain text: leave out --print-ids and "
           "--keep-special-tokens";
  }
  if (line.command == Command::kSession && line.session.verb.empty()) {
    return "session needs a verb: create, get, list, fork, truncate, touch, offload, prefetch, "
           "pin, "
           "unpin, close, watch, export or import";
  }
  if (line.command == Command::kAbort && line.abort.request_ids.empty() && !line.abort.all) {
    return "abort needs request ids, or --all";
  }
  return "";
}

ParsedLine Mistake(const std::string& what) {
  ParsedLine parsed;
  parsed.exit_code = kExitUsage;
  parsed.err = "quire: " + what + "\nRun with --help for the flags.\n";
  return parsed;
}

}  // namespace

ParsedLine ParseInvocation(const std::vector<std::string>& args) {
  Invocation line;
  CLI::App app("Talks to a Quire server.", "quire");
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  app.fallthrough();  // --server and friends may follow the command
  AddShared(&app, &line);
  AddGenerate(app.add_subcommand("generate", "Stream a completion"), &line.generate);
  AddTokens(&app, &line);
  AddSession(&app, &line.session);
  AddControl(&app, &line);

  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 takes them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return Mistake(error.what());
    ParsedLine parsed;
    std::ostringstream out, err;
    app.exit(error, out, err);  // help or version
    parsed.out = out.str();
    return parsed;
  }
  if (app.get_subcommands().empty()) {
    return Mistake(
        "a command is required: generate, tokenize, detokenize, session, info, abort or "
        "drain");
  }
  line.command = CommandOf(app.get_subcommands().front()->get_name());
  const std::string contradiction = Contradiction(line);
  if (!contradiction.empty()) return Mistake(contradiction);
  ParsedLine parsed;
  parsed.invocation = std::move(line);
  return parsed;
}

}  // namespace quire::cli
