// A command line to Settings: values first, then the contradictions that no single row can see.
#include "clients/load/options.h"

#include <cmath>
#include <fstream>
#include <utility>

#include "clients/load/option_table.h"
#include "clients/load/option_values.h"
#include "clients/load/workload/arrivals.h"
#include "clients/load/workload/workload.h"
#include "flags/help.h"
#include "flags/parser.h"

namespace quire::load {
namespace {

// Contradictions between flags; empty when there is none.
std::string LengthContradiction(const flags::CommandLine& line, const WorkloadSettings& w) {
  const auto said = [&](std::string_view flag) { return line.Said(flag.substr(2)); };
  if (said("--lengths") && (said("--random-input-len") || said("--random-output-len"))) {
    return "--lengths replaces --random-input-len and --random-output-len: give one of them";
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

std::string ArrivalContradiction(const flags::CommandLine& line, const Settings& s) {
  const auto said = [&](std::string_view flag) { return line.Said(flag.substr(2)); };
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

std::string MixtureContradiction(const flags::CommandLine& line) {
  const auto said = [&](std::string_view flag) { return line.Said(flag.substr(2)); };
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

// Parses the words that wait for all of their kind; empty when all is well.
std::string TakeLateWords(const OptionWords& words, Settings* s) {
  if (words.ramp == "linear") s->arrival.ramp = Ramp::kLinear;
  if (words.ramp == "exponential") s->arrival.ramp = Ramp::kExponential;
  const auto limits = ParseGoodput(words.goodput);
  if (!limits) return "--goodput must be ttft:MS, tpot:MS or e2el:MS, with milliseconds above 0";
  s->limits = *limits;
  for (const std::string& word : words.metadata) {
    const auto pair = ParseMetadata(word);
    if (!pair) return "--metadata '" + word + "': must be KEY=VALUE";
    s->metadata.push_back(*pair);
  }
  return "";
}

// The lines of a file of flags; any other line is a fault.
std::vector<flags::Given> ReadConfig(const std::string& path, flags::CommandLine* line) {
  std::vector<flags::Given> given;
  if (path.empty()) return given;
  std::ifstream file(path);
  if (!file) line->faults.push_back("--config: cannot read " + path);
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    const auto entry = ParseConfigLine(text);
    const std::string where = path + ":" + std::to_string(++number);
    if (!entry) {
      line->faults.push_back(where + " must be FLAG=VALUE, not '" + text + "'");
      continue;
    }
    for (const std::string& value : entry->values) {
      given.push_back({entry->name, where + ": " + entry->name, value});
    }
  }
  return given;
}

void ApplyAll(const flags::Program& program, OptionWords* words, flags::CommandLine* line) {
  std::vector<flags::Given> config;
  for (const flags::Given& entry : line->given) {
    if (entry.name == "config") config.push_back(entry);
  }
  std::erase_if(line->given, [](const flags::Given& entry) { return entry.name == "config"; });
  flags::Apply(program, config, flags::AsFlag, line);
  flags::Apply(program, ReadConfig(words->config_path, line), flags::AsKey, line);
  flags::Apply(program, line->given, flags::AsFlag, line);
}

}  // namespace

ParsedOptions ParseOptions(const std::vector<std::string>& args, bool terminal,
                           const connect::Environment& environment) {
  OptionWords words;
  const flags::Program program = LoadProgram(&words);
  flags::CommandLine line = flags::ReadArguments(program, args);
  ParsedOptions parsed;
  if (const std::optional<std::string> answer = flags::Answer(program, line)) {
    parsed.out = *answer;
    return parsed;
  }
  ApplyAll(program, &words, &line);
  Settings& settings = words.settings;
  settings.command_line = "quire-load";
  for (const std::string& arg : args) settings.command_line += " " + arg;
  if (line.faults.empty()) {
    std::string wrong = TakeLateWords(words, &settings);
    if (wrong.empty()) wrong = LengthContradiction(line, settings.workload);
    if (wrong.empty()) wrong = ArrivalContradiction(line, settings);
    if (wrong.empty()) wrong = MixtureContradiction(line);
    words.connection.said_tls = line.Said("tls");
    absl::StatusOr<connect::Endpoint> endpoint =
        connect::ResolveEndpoint(words.connection, environment);
    if (wrong.empty() && !endpoint.ok()) wrong = std::string(endpoint.status().message());
    if (endpoint.ok()) settings.endpoint = *std::move(endpoint);
    if (!wrong.empty()) line.faults.push_back(wrong);
  }
  if (!line.faults.empty()) {
    parsed.exit_code = kExitUsage;
    for (const std::string& fault : line.faults) parsed.err += "quire-load: " + fault + "\n";
    parsed.err += "quire-load --help lists the flags.\n";
    return parsed;
  }
  for (const std::string& notice : line.notices) parsed.err += "quire-load: " + notice + "\n";
  settings.progress = words.quiet ? ProgressStyle::kNone
                      : terminal  ? ProgressStyle::kLive
                                  : ProgressStyle::kLines;
  parsed.settings = std::move(settings);
  return parsed;
}

}  // namespace quire::load
