// The rows of quire-load: the one place where its flags have their names and help texts.
#include "clients/load/option_table.h"

#include <utility>

#include "clients/load/option_values.h"
#include "clients/load/workload/lengths.h"
#include "version/build_facts.h"

namespace quire::load {
namespace {

using flags::Flag;
using flags::ForeignFlag;
using flags::Unit;
using Rows = std::vector<Flag>;

constexpr double kMaxCount = 1 << 30;
constexpr double kMaxSeconds = 1e9;

constexpr char kNotes[] =
    "LENGTH is a number of tokens: 512, 128:512 (uniform) or normal:512:64 (mean, deviation).\n"
    "Numbers: 32k is 32000, 32K is 32768; times 250ms, 90s, 30m, 2h; shares 0.5 or 50%.\n"
    "Exit codes: 0 success; 1 nothing could be run, or a run failed, ended early or is invalid;\n"
    "2 a mistake on the command line; 6 the system refused memory or threads.\n"
    "docs/load.md defines every figure.\n";

// Flags of vLLM's and SGLang's serve benchmarks.
constexpr ForeignFlag kForeign[] = {
    {"host|port|base-url|url", ForeignFlag::Answer::kInstead, true,
     "--server HOST:PORT or unix:PATH"},
    {"backend|endpoint|endpoint-type", ForeignFlag::Answer::kNone, true,
     "it speaks quire.v1 over gRPC only"},
    {"api-key", ForeignFlag::Answer::kInstead, true,
     "--api-key-file FILE, or the variable QUIRE_API_KEY, because a command line is no place for a "
     "secret:"},
    {"tokenizer|tokenizer-mode", ForeignFlag::Answer::kNoEffect, true,
     "prompts are token ids, and texts are tokenized by the server"},
    {"trust-remote-code", ForeignFlag::Answer::kNoEffect, false,
     "Quire never runs code of a checkpoint"},
    {"dataset-name|dataset-path|sharegpt-output-len", ForeignFlag::Answer::kInstead, true,
     "--prompt-file FILE, --trace FILE or --lengths sharegpt-like"},
    {"percentile-metrics|metric-percentiles", ForeignFlag::Answer::kNoEffect, true,
     "every figure has its percentiles"},
    {"disable-tqdm", ForeignFlag::Answer::kInstead, false, "--quiet"},
    {"save-result", ForeignFlag::Answer::kInstead, false, "--result-dir DIR"},
    {"output-file", ForeignFlag::Answer::kInstead, true, "--result-dir DIR"},
    {"disable-stream", ForeignFlag::Answer::kNone, false, "it measures streams"},
};

// Sets *value to the parsed text; false when `parse` returns nothing.
template <typename T, typename Parse>
flags::TakeText Take(T* value, Parse parse) {
  return [=](const std::string& text) {
    auto parsed = parse(text);
    if (parsed) *value = *parsed;
    return parsed.has_value();
  };
}

Flag LengthRow(std::string_view name, std::string_view group, LengthSpec* value,
               std::string_view help, std::string_view unset) {
  return {.name = name,
          .group = group,
          .help = help,
          .target = Take(value, [](const std::string& text) { return ParseLengthSpec(text, 1); }),
          .placeholder = "LENGTH",
          .wants = "512, 128:512 or normal:512:64, in tokens from 1 up",
          .unset = unset};
}

Flag ShareRow(std::string_view name, std::string_view group, double* value, std::string_view help) {
  return {.name = name,
          .group = group,
          .help = help,
          .target = value,
          .unit = Unit::kShare,
          .highest = 1};
}

Flag SecondsRow(std::string_view name, std::string_view group, double* value,
                std::string_view help) {
  return {.name = name,
          .group = group,
          .help = help,
          .target = value,
          .unit = Unit::kSeconds,
          .highest = kMaxSeconds};
}

Rows TargetRows(OptionWords* words) {
  constexpr std::string_view kGroup = "Server";
  Settings* s = &words->settings;
  return {
      connect::ServerRow(&words->connection, kGroup),
      {.name = "model",
       .group = kGroup,
       .help = "name of the served model",
       .target = &s->model,
       .placeholder = "NAME",
       .unset = "the server's"},
      {.name = "metrics",
       .group = kGroup,
       .help = "address of its /metrics, read once a second",
       .target = &s->metrics,
       .placeholder = "HOST:PORT",
       .unset = "not read"},
      {.name = "channels",
       .group = kGroup,
       .help = "connections; 0: enough for the streams",
       .target = &s->channels,
       .highest = 1024},
  };
}

Rows ArrivalRows(OptionWords* words) {
  constexpr std::string_view kGroup = "Arrival";
  ArrivalSettings* a = &words->settings.arrival;
  return {
      {.name = "request-rate",
       .group = kGroup,
       .help = "requests/s; inf: all at once, or a closed loop with --max-concurrency",
       .target = Take(&a->request_rate, ParseRate),
       .aliases = "qps",
       .placeholder = "RATE",
       .wants = "a number above 0, or inf",
       .unset = "inf"},
      {.name = "burstiness",
       .group = kGroup,
       .help = "gamma shape of the gaps: 1 Poisson, less is burstier, inf evenly spaced",
       .target = Take(&a->burstiness, ParseRate),
       .placeholder = "SHAPE",
       .wants = "a number above 0, or inf",
       .unset = "1"},
      {.name = "max-concurrency",
       .group = kGroup,
       .help = "maximum number of requests (or conversations) in flight",
       .target = Take(&a->max_concurrency, ParseConcurrency),
       .aliases = "concurrency",
       .placeholder = "N",
       .wants = "a whole number, 1 to 1000000",
       .unset = "any number"},
      {.name = "ramp-up-strategy",
       .group = kGroup,
       .help = "how the rate grows over the requests",
       .target = &words->ramp,
       .choices = "none|linear|exponential"},
      {.name = "ramp-up-start-rps",
       .group = kGroup,
       .help = "rate at the beginning of the ramp",
       .target = Take(&a->ramp_start_rps, ParsePositive),
       .placeholder = "RATE",
       .wants = "a number above 0",
       .unset = "none"},
      {.name = "ramp-up-end-rps",
       .group = kGroup,
       .help = "rate at the end of the ramp",
       .target = Take(&a->ramp_end_rps, ParsePositive),
       .placeholder = "RATE",
       .wants = "a number above 0",
       .unset = "none"},
      SecondsRow("concurrency-ramp", kGroup, &a->concurrency_ramp_seconds,
                 "time until --max-concurrency is reached"),
      {.name = "sweep",
       .group = kGroup,
       .help = "a run at each of these rates, then growing until the server saturates",
       .target = Take(&words->settings.sweep_rates, ParseRates),
       .placeholder = "RATES",
       .wants = "rates above 0 with commas: 1,4,16",
       .unset = "none"},
      {.name = "sweep-step",
       .group = kGroup,
       .help = "growth of the rate after those",
       .target = &words->settings.sweep_step,
       .lowest = 1.01,
       .highest = 10},
  };
}

Rows ExtentRows(Settings* s) {
  constexpr std::string_view kGroup = "Extent";
  WorkloadSettings* w = &s->workload;
  return {
      {.name = "num-prompts",
       .group = kGroup,
       .help = "requests, or conversations; 0: 1000, or all that --duration or --trace holds",
       .target = &w->num_prompts,
       .unit = Unit::kCount,
       .highest = kMaxCount,
       .aliases = "num-requests"},
      SecondsRow("duration", kGroup, &w->duration_seconds,
                 "time in which requests begin; 0: no limit"),
      SecondsRow("time-limit", kGroup, &s->time_limit_seconds,
                 "time after which the run is ended; 0: no limit"),
      {.name = "num-warmups",
       .group = kGroup,
       .help = "requests sent before, eight at a time, and not counted",
       .target = &w->num_warmups,
       .unit = Unit::kCount,
       .highest = kMaxCount},
      {.name = "seed",
       .group = kGroup,
       .help = "the same seed makes the same requests",
       .target = &w->seed},
  };
}

std::string LengthTables() {
  std::string names;
  for (const std::string& name : LengthTableNames()) names += (names.empty() ? "" : "|") + name;
  return names;
}

Rows PromptRows(Settings* s) {
  constexpr std::string_view kGroup = "Prompts";
  WorkloadSettings* w = &s->workload;
  return {
      LengthRow("random-input-len", kGroup, &w->input_len, "prompt tokens, drawn at random",
                "1024"),
      {.name = "lengths",
       .group = kGroup,
       .help = "lengths of prompts and answers from a table of docs/load.md",
       .target = &w->length_table,
       .choices = LengthTables(),
       .unset = "none"},
      {.name = "trace",
       .group = kGroup,
       .help = "lengths and times from a file",
       .target = &w->trace_file,
       .placeholder = "FILE",
       .unset = "none"},
      {.name = "trace-block",
       .group = kGroup,
       .help = "tokens that one of its hash_ids stands for",
       .target = &w->trace_block,
       .unit = Unit::kCount,
       .lowest = 1,
       .highest = 1 << 20},
      {.name = "trace-speed",
       .group = kGroup,
       .help = "its times are divided by this",
       .target = Take(&s->arrival.trace_speed, ParsePositive),
       .placeholder = "FACTOR",
       .wants = "a number above 0",
       .unset = "1"},
      {.name = "prompt-file",
       .group = kGroup,
       .help = "texts from a file, one a line",
       .target = &w->prompt_file,
       .placeholder = "FILE",
       .unset = "none"},
      {.name = "chat", .group = kGroup, .help = "its texts are user messages", .target = &w->chat},
      {.name = "random-prefix-len",
       .group = kGroup,
       .help = "shared tokens before each prompt",
       .target = &w->prefix_len,
       .unit = Unit::kCount,
       .highest = kMaxCount},
      {.name = "num-prefixes",
       .group = kGroup,
       .help = "number of different shared prefixes",
       .target = &w->num_prefixes,
       .unit = Unit::kCount,
       .lowest = 1,
       .highest = kMaxCount},
      {.name = "clip-to-context",
       .group = kGroup,
       .help = "shorten prompts and answers that the model cannot hold",
       .target = &w->clip_to_context},
  };
}

Rows AnswerRows(Settings* s) {
  constexpr std::string_view kGroup = "Answers";
  constexpr std::string_view kServers = "the server's";
  WorkloadSettings* w = &s->workload;
  return {
      LengthRow("random-output-len", kGroup, &w->output_len, "tokens asked for", "128"),
      {.name = "ignore-eos",
       .group = kGroup,
       .help = "answers end only at the length asked for",
       .target = &w->ignore_eos},
      {.name = "temperature",
       .group = kGroup,
       .help = "temperature of sampling, 0 to 100",
       .target = Take(&w->temperature, ParseTemperature),
       .placeholder = "T",
       .wants = "a number, 0 to 100",
       .unset = kServers},
      {.name = "top-p",
       .group = kGroup,
       .help = "likeliest tokens up to this sum",
       .target = Take(&w->top_p, ParseShare),
       .placeholder = "SHARE",
       .wants = "a number, 0 to 1",
       .unset = kServers},
      {.name = "top-k",
       .group = kGroup,
       .help = "number of likeliest tokens; 0 keeps all",
       .target = Take(&w->top_k, ParseTopK),
       .placeholder = "K",
       .wants = "a whole number from 0 up",
       .unset = kServers},
      {.name = "text", .group = kGroup, .help = "ask for text", .target = &w->text},
      {.name = "token-ids", .group = kGroup, .help = "ask for token ids", .target = &w->token_ids},
  };
}

Rows ConversationRows(Settings* s) {
  constexpr std::string_view kGroup = "Conversations";
  WorkloadSettings* w = &s->workload;
  return {
      LengthRow("turns", kGroup, &w->turns, "turns of a conversation", "1"),
      LengthRow("turn-input-len", kGroup, &w->turn_input_len, "new tokens of each later turn",
                "256"),
      SecondsRow("think-time", kGroup, &w->think_seconds_median,
                 "median time before each later turn, log-normal"),
      {.name = "think-sigma",
       .group = kGroup,
       .help = "sigma of the think time's logarithm",
       .target = &w->think_sigma,
       .highest = 10},
      ShareRow("fork-probability", kGroup, &w->fork_probability,
               "probability that two turns follow a turn and share its history"),
      {.name = "sessions",
       .group = kGroup,
       .help = "whether the server keeps the histories; auto: if it can",
       .target = Take(&s->sessions, ParseSessionUse),
       .placeholder = "WORD",
       .wants = "auto, on or off",
       .unset = "auto"},
  };
}

Rows MixtureRows(WorkloadSettings* w) {
  constexpr std::string_view kGroup = "Mixture";
  return {
      {.name = "priorities",
       .group = kGroup,
       .help = "priorities and their weights",
       .target = Take(&w->priorities, ParsePriorities),
       .placeholder = "LIST",
       .wants = "priority:weight with commas: 0:0.9,10:0.1",
       .unset = "0:1"},
      ShareRow("deadline-share", kGroup, &w->deadline_share, "share of requests with a deadline"),
      {.name = "deadline",
       .group = kGroup,
       .help = "seconds until it, 2 or 0.5:2 (uniform)",
       .target = Take(&w->deadline_seconds, ParseRange),
       .placeholder = "SECONDS",
       .wants = "seconds, or a range: 0.5:2",
       .unset = "none"},
      ShareRow("cancel-share", kGroup, &w->cancel_share, "share of requests that we cancel"),
      LengthRow("cancel-after", kGroup, &w->cancel_after, "received tokens before that", "1"),
      ShareRow("slow-reader-share", kGroup, &w->slow_share,
               "share of streams that are read slowly, and not counted"),
      SecondsRow("slow-reader-delay", kGroup, &w->slow_delay_seconds,
                 "time before each of their reads"),
  };
}

Rows ResultRows(OptionWords* words) {
  constexpr std::string_view kGroup = "Results";
  Settings* s = &words->settings;
  return {
      {.name = "goodput",
       .group = kGroup,
       .help = "limits in milliseconds: ttft:500 tpot:30 e2el:1000",
       .target = &words->goodput,
       .placeholder = "LIMIT:MS",
       .unset = "none",
       .many = true},
      {.name = "workload",
       .group = kGroup,
       .help = "name of the workload in the reports",
       .target = &s->workload.name,
       .placeholder = "NAME"},
      {.name = "metadata",
       .group = kGroup,
       .help = "facts for the reports",
       .target = &words->metadata,
       .placeholder = "KEY=VALUE",
       .unset = "none",
       .many = true},
      {.name = "save-detailed",
       .group = kGroup,
       .help = "keep every request's gaps and text",
       .target = &s->detailed},
      {.name = "result-dir",
       .group = kGroup,
       .help = "folder for all reports",
       .target = &s->result_dir,
       .placeholder = "DIR",
       .unset = "none"},
      {.name = "result-filename",
       .group = kGroup,
       .help = "name of vLLM's JSON in it",
       .target = &s->result_filename,
       .placeholder = "NAME",
       .unset = "from rate, model and date"},
      {.name = "quiet", .group = kGroup, .help = "print no progress", .target = &words->quiet},
      {.name = "config",
       .group = kGroup,
       .help = "file of flags, FLAG=VALUE a line",
       .target = &words->config_path,
       .placeholder = "FILE",
       .unset = "none"},
  };
}

}  // namespace

flags::Program LoadProgram(OptionWords* words) {
  flags::Program program{.root = {.name = "quire-load",
                                  .help = "Puts load on a Quire server and measures its answers."},
                         .version = ThisBuild().version,
                         .build = Describe(ThisBuild()),
                         .notes = kNotes,
                         .foreign = kForeign};
  Settings* s = &words->settings;
  for (Rows& rows : std::vector<Rows>{
           TargetRows(words), connect::ConnectionRows(&words->connection, "Connection"),
           ArrivalRows(words), ExtentRows(s), PromptRows(s), AnswerRows(s), ConversationRows(s),
           MixtureRows(&s->workload), ResultRows(words)}) {
    for (Flag& row : rows) program.root.flags.push_back(std::move(row));
  }
  return program;
}

}  // namespace quire::load
