// The flags of quire-load: the one place where their names and help texts are written.
#include "clients/load/options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "clients/load/option_values.h"
#include "clients/load/workload/arrivals.h"
#include "clients/load/workload/lengths.h"
#include "clients/load/workload/workload.h"

namespace quire::load {
namespace {

constexpr char kFooter[] =
    "LENGTH is a number of tokens: 512, 128:512 (uniform) or normal:512:64 (mean, deviation).\n"
    "Exit codes: 0 success; 1 nothing could be run, or a run failed, ended early or is invalid;\n"
    "2 a mistake on the command line. docs/load.md defines every figure.";

struct FlagWords {
  const char* name;
  const char* help;
  const char* wants;  // what its text must be
};

// A flag whose text `parse` turns into *value, or into nothing when it is not what it must be.
template <typename T, typename Parse>
CLI::Option* AddParsed(CLI::App* app, const FlagWords& words, T* value, Parse parse) {
  const std::string wants = words.wants;
  return app
      ->add_option_function<std::string>(
          words.name, [=](const std::string& text) { *value = *parse(text); }, words.help)
      ->check([=](const std::string& text) {
        return parse(text) ? "" : "is \"" + text + "\" but wants " + wants;
      })
      ->type_name("");
}

CLI::Option* AddLength(CLI::App* app, const char* name, LengthSpec* value, const char* help) {
  const FlagWords words{name, help, "512, 128:512 or normal:512:64, in tokens from 1 up"};
  return AddParsed(app, words, value, [](const std::string& t) { return ParseLengthSpec(t, 1); })
      ->type_name("LENGTH");
}

CLI::Option* AddShare(CLI::App* app, const std::string& name, double* value,
                      const std::string& help) {
  return app->add_option(name, *value, help)->check(CLI::Range(0.0, 1.0));
}

void AddTarget(CLI::App* app, Settings* s) {
  const char* group = "Server";
  app->add_option("--server", s->server, "host:port or unix:PATH of its gRPC")
      ->group(group)
      ->capture_default_str();
  app->add_option("--model", s->model, "A served model's name; default: the server's")
      ->group(group);
  app->add_option("--metrics", s->metrics, "host:port of its /metrics, read once a second")
      ->group(group);
  app->add_option("--channels", s->channels, "Connections; 0: enough for the streams")
      ->check(CLI::Range(0, 1024))
      ->group(group);
}

void AddArrival(CLI::App* app, Settings* s, std::string* ramp) {
  const char* group = "Arrival";
  ArrivalSettings* a = &s->arrival;
  const FlagWords rate{"--request-rate",
                       "Requests/s; inf: all at once, or a closed loop with --max-concurrency",
                       "a number above 0, or inf"};
  AddParsed(app, rate, &a->request_rate, ParseRate)->group(group);
  const FlagWords burstiness{
      "--burstiness", "Gamma shape of the gaps: 1 Poisson, less is burstier, inf evenly spaced",
      "a number above 0, or inf"};
  AddParsed(app, burstiness, &a->burstiness, ParseRate)->group(group);
  app->add_option("--max-concurrency", a->max_concurrency,
                  "Requests in flight at most (conversations, if there are any)")
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
  app->add_option("--ramp-up-strategy", *ramp, "The rate grows over the requests")
      ->check(CLI::IsMember({"linear", "exponential"}))
      ->group(group);
  app->add_option("--ramp-up-start-rps", a->ramp_start_rps, "From this rate")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app->add_option("--ramp-up-end-rps", a->ramp_end_rps, "To this rate")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app->add_option("--concurrency-ramp", a->concurrency_ramp_seconds,
                  "Seconds in which --max-concurrency is reached")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  const FlagWords sweep{"--sweep",
                        "A run at each of these rates, then growing until the server saturates",
                        "rates above 0 with commas: 1,4,16"};
  AddParsed(app, sweep, &s->sweep_rates, ParseRates)->group(group);
  app->add_option("--sweep-step", s->sweep_step, "Growth of the rate then")
      ->check(CLI::Range(1.01, 10.0))
      ->group(group)
      ->capture_default_str();
}

void AddExtent(CLI::App* app, Settings* s) {
  const char* group = "Extent";
  WorkloadSettings* w = &s->workload;
  app->add_option("--num-prompts", w->num_prompts,
                  "Requests, or conversations; default: 1000, or what --duration or --trace holds")
      ->check(CLI::Range(1, 1 << 30))
      ->group(group);
  app->add_option("--duration", w->duration_seconds, "Seconds in which requests are begun")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app->add_option("--time-limit", s->time_limit_seconds, "Seconds after which the run is ended")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app->add_option("--num-warmups", w->num_warmups, "Requests before, eight at a time, not counted")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app->add_option("--seed", w->seed, "The same seed asks the same")
      ->group(group)
      ->capture_default_str();
}

void AddPrompts(CLI::App* app, Settings* s) {
  const char* group = "Prompts and answers";
  WorkloadSettings* w = &s->workload;
  AddLength(app, "--random-input-len", &w->input_len, "Prompt tokens, drawn at random [1024]")
      ->group(group);
  AddLength(app, "--random-output-len", &w->output_len, "Tokens asked for [128]")->group(group);
  app->add_option("--lengths", w->length_table, "Both from a table of docs/load.md")
      ->check(CLI::IsMember(LengthTableNames()))
      ->group(group);
  app->add_option("--trace", w->trace_file, "Lengths and times from a file")->group(group);
  app->add_option("--trace-block", w->trace_block, "Tokens of each of its hash_ids")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group)
      ->capture_default_str();
  app->add_option("--trace-speed", s->arrival.trace_speed, "Its times are divided by this")
      ->check(CLI::PositiveNumber)
      ->group(group)
      ->capture_default_str();
  app->add_option("--prompt-file", w->prompt_file, "Texts from a file, one a line")->group(group);
  app->add_flag("--chat", w->chat, "Its texts are user messages")->group(group);
  app->add_option("--random-prefix-len", w->prefix_len, "Shared tokens before each prompt")
      ->check(CLI::Range(0, 1 << 30))
      ->group(group);
  app->add_option("--num-prefixes", w->num_prefixes, "Different shared prefixes")
      ->check(CLI::Range(1, 1 << 30))
      ->group(group)
      ->capture_default_str();
  app->add_flag("--clip-to-context", w->clip_to_context, "Shorten what the model cannot hold")
      ->group(group);
  app->add_flag("--ignore-eos", w->ignore_eos, "Answers end only at the length asked for")
      ->group(group);
  app->add_option("--temperature", w->temperature, "Default: the server's")
      ->check(CLI::Range(0.0, 100.0))
      ->group(group);
  app->add_option("--top-p", w->top_p)->check(CLI::Range(0.0, 1.0))->group(group);
  app->add_option("--top-k", w->top_k)->check(CLI::NonNegativeNumber)->group(group);
  const auto leave_out = [&](const char* name, bool* asked, const char* help) {
    app->add_flag_callback(
           name, [asked] { *asked = false; }, help)
        ->group(group);
  };
  leave_out("--no-text", &w->text, "Do not ask for text");
  leave_out("--no-token-ids", &w->token_ids, "Do not ask for token ids");
}

void AddConversations(CLI::App* app, Settings* s) {
  const char* group = "Conversations";
  WorkloadSettings* w = &s->workload;
  AddLength(app, "--turns", &w->turns, "Turns of a conversation [1]")->group(group);
  AddLength(app, "--turn-input-len", &w->turn_input_len, "New tokens of each later turn [256]")
      ->group(group);
  app->add_option("--think-time", w->think_seconds_median, "Median seconds before a later turn")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app->add_option("--think-sigma", w->think_sigma, "Of the log-normal think time")
      ->check(CLI::Range(0.0, 10.0))
      ->group(group);
  AddShare(app, "--fork-probability", &w->fork_probability,
           "That a turn is followed by two that share its history")
      ->group(group);
  const FlagWords sessions{"--sessions", "The server keeps the histories [auto: if it can]",
                           "auto, on or off"};
  AddParsed(app, sessions, &s->sessions, ParseSessionUse)->group(group);
}

void AddTraits(CLI::App* app, WorkloadSettings* w) {
  const char* group = "Mixture";
  const FlagWords priorities{"--priorities", "Priorities and their weights",
                             "priority:weight with commas: 0:0.9,10:0.1"};
  AddParsed(app, priorities, &w->priorities, ParsePriorities)->group(group);
  AddShare(app, "--deadline-share", &w->deadline_share, "Requests with a deadline")->group(group);
  const FlagWords deadline{"--deadline", "Their seconds: 2 or 0.5:2", "seconds, or a range: 0.5:2"};
  AddParsed(app, deadline, &w->deadline_seconds, ParseRange)->group(group);
  AddShare(app, "--cancel-share", &w->cancel_share, "Requests that the client cancels")
      ->group(group);
  AddLength(app, "--cancel-after", &w->cancel_after, "After so many tokens [1]")->group(group);
  AddShare(app, "--slow-reader-share", &w->slow_share, "Streams read slowly, and not counted")
      ->group(group);
  app->add_option("--slow-reader-delay", w->slow_delay_seconds,
                  "Seconds before each of their reads")
      ->check(CLI::NonNegativeNumber)
      ->group(group)
      ->capture_default_str();
}

// Words that are parsed once all are there.
struct LateWords {
  std::string ramp;
  std::vector<std::string> goodput, metadata;
  bool quiet = false;
};

void AddResults(CLI::App* app, Settings* s, LateWords* words) {
  const char* group = "Results";
  app->add_option("--goodput", words->goodput, "Limits in ms: ttft:500 tpot:30 e2el:1000")
      ->group(group);
  app->add_option("--workload", s->workload.name, "The workload's name in the reports")
      ->group(group)
      ->capture_default_str();
  app->add_option("--metadata", words->metadata, "KEY=VALUE for the reports; repeatable")
      ->group(group);
  app->add_flag("--save-detailed", s->detailed, "Keep every request's gaps and text")->group(group);
  app->add_option("--result-dir", s->result_dir, "Write all reports there")->group(group);
  app->add_option("--result-filename", s->result_filename, "Of vLLM's JSON in it")->group(group);
  app->add_flag("--quiet", words->quiet, "No progress")->group(group);
}

// What the flags' own types cannot say; empty when all is well.
std::string LengthContradiction(const CLI::App& app, const WorkloadSettings& w) {
  const auto said = [&](const char* flag) { return app.count(flag) > 0; };
  if (said("--lengths") && (said("--random-input-len") || said("--random-output-len"))) {
    return "--lengths sets what --random-input-len and --random-output-len set; give one of them";
  }
  if (said("--trace") && (said("--lengths") || said("--random-input-len") ||
                          said("--random-output-len") || said("--prompt-file"))) {
    return "--trace brings its lengths; leave out --lengths, --random-input-len, "
           "--random-output-len and --prompt-file";
  }
  if (said("--prompt-file") && (said("--random-input-len") || said("--random-prefix-len"))) {
    return "--prompt-file brings its prompts; leave out --random-input-len and "
           "--random-prefix-len";
  }
  if (w.chat && !said("--prompt-file")) return "--chat needs the texts of --prompt-file";
  const bool conversations = HasConversations(w);
  if (conversations && (said("--trace") || said("--prompt-file"))) {
    return "--turns makes conversations of random tokens; leave out --trace and --prompt-file";
  }
  if (conversations && !w.token_ids) {
    return "--turns needs the answers' token ids; leave out --no-token-ids";
  }
  if (!conversations &&
      (said("--think-time") || said("--fork-probability") || said("--sessions"))) {
    return "--think-time, --fork-probability and --sessions need conversations: --turns 2 or more";
  }
  return "";
}

std::string ArrivalContradiction(const CLI::App& app, const Settings& s) {
  const auto said = [&](const char* flag) { return app.count(flag) > 0; };
  const bool ramp = s.arrival.ramp != Ramp::kNone;
  const bool rate = std::isfinite(s.arrival.request_rate);
  if (ramp && (!said("--ramp-up-start-rps") || !said("--ramp-up-end-rps"))) {
    return "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps";
  }
  if (!ramp && (said("--ramp-up-start-rps") || said("--ramp-up-end-rps"))) {
    return "--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy";
  }
  if (ramp + rate + !s.sweep_rates.empty() > 1) {
    return "--request-rate, --ramp-up-strategy and --sweep each set the rate; give one of them";
  }
  if (said("--burstiness") && !ramp && !rate && s.sweep_rates.empty()) {
    return "--burstiness shapes a rate; give --request-rate too";
  }
  if (said("--concurrency-ramp") && !said("--max-concurrency")) {
    return "--concurrency-ramp needs --max-concurrency";
  }
  const bool timed = said("--trace") && !rate && !ramp && s.sweep_rates.empty();
  if (said("--duration") && !rate && !ramp && s.sweep_rates.empty() && !timed &&
      !said("--max-concurrency")) {
    return "--duration needs a rate or --max-concurrency: without them all requests are sent at "
           "once";
  }
  return "";
}

std::string MixtureContradiction(const CLI::App& app) {
  const auto said = [&](const char* flag) { return app.count(flag) > 0; };
  if (said("--deadline") != said("--deadline-share")) {
    return "--deadline and --deadline-share need each other";
  }
  if (said("--cancel-after") && !said("--cancel-share")) {
    return "--cancel-after needs --cancel-share";
  }
  if (said("--slow-reader-delay") && !said("--slow-reader-share")) {
    return "--slow-reader-delay needs --slow-reader-share";
  }
  if (said("--num-prefixes") && !said("--random-prefix-len")) {
    return "--num-prefixes needs --random-prefix-len";
  }
  if ((said("--trace-speed") || said("--trace-block")) && !said("--trace")) {
    return "--trace-speed and --trace-block need --trace";
  }
  if (said("--result-filename") && !said("--result-dir")) {
    return "--result-filename needs --result-dir";
  }
  return "";
}

// Parses the late words into the settings; empty when all is well.
std::string TakeLateWords(const LateWords& words, Settings* s) {
  if (words.ramp == "linear") s->arrival.ramp = Ramp::kLinear;
  if (words.ramp == "exponential") s->arrival.ramp = Ramp::kExponential;
  const auto limits = ParseGoodput(words.goodput);
  if (!limits) return "--goodput wants ttft:MS, tpot:MS or e2el:MS, with milliseconds above 0";
  s->limits = *limits;
  for (const std::string& word : words.metadata) {
    const auto pair = ParseMetadata(word);
    if (!pair) return "--metadata is \"" + word + "\" but wants KEY=VALUE";
    s->metadata.push_back(*pair);
  }
  return "";
}

ParsedOptions Mistake(const std::string& what) {
  ParsedOptions parsed;
  parsed.exit_code = kExitUsage;
  parsed.err = "quire-load: " + what + "\nRun with --help for the flags.\n";
  return parsed;
}

}  // namespace

ParsedOptions ParseOptions(const std::vector<std::string>& args, bool terminal) {
  Settings settings;
  LateWords words;
  CLI::App app("Puts load on a Quire server and measures what it does.", "quire-load");
  app.set_version_flag("--version", "quire-load " QUIRE_VERSION);
  app.set_config("--config", "", "Flags from a file, one FLAG=VALUE a line");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.footer(kFooter);
  AddTarget(&app, &settings);
  AddArrival(&app, &settings, &words.ramp);
  AddExtent(&app, &settings);
  AddPrompts(&app, &settings);
  AddConversations(&app, &settings);
  AddTraits(&app, &settings.workload);
  AddResults(&app, &settings, &words);

  settings.command_line = "quire-load";
  for (const std::string& arg : args) absl::StrAppend(&settings.command_line, " ", arg);
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 takes them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return Mistake(error.what());
    ParsedOptions parsed;
    std::ostringstream out, err;
    app.exit(error, out, err);  // help or version
    parsed.out = out.str();
    return parsed;
  }
  std::string wrong = TakeLateWords(words, &settings);
  if (wrong.empty()) wrong = LengthContradiction(app, settings.workload);
  if (wrong.empty()) wrong = ArrivalContradiction(app, settings);
  if (wrong.empty()) wrong = MixtureContradiction(app);
  if (!wrong.empty()) return Mistake(wrong);
  settings.progress = words.quiet ? ProgressStyle::kNone
                      : terminal  ? ProgressStyle::kLive
                                  : ProgressStyle::kLines;
  ParsedOptions parsed;
  parsed.settings = std::move(settings);
  return parsed;
}

}  // namespace quire::load
