// The command line: what each word becomes, and a sentence for each mistake.
#include "clients/load/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "clients/load/option_table.h"
#include "clients/load/option_values.h"

namespace quire::load {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Settings Parsed(const std::vector<std::string>& args) {
  const ParsedOptions parsed = ParseOptions(args, false);
  EXPECT_TRUE(parsed.settings.has_value()) << parsed.err;
  return parsed.settings.value_or(Settings());
}

std::string Mistake(const std::vector<std::string>& args) {
  const ParsedOptions parsed = ParseOptions(args, false);
  EXPECT_FALSE(parsed.settings.has_value());
  EXPECT_EQ(parsed.exit_code, kExitUsage);
  EXPECT_EQ(parsed.out, "");
  return parsed.err;
}

TEST(OptionsTest, Defaults) {
  const Settings settings = Parsed({});
  EXPECT_EQ(settings.endpoint.server, "127.0.0.1:50051");
  EXPECT_TRUE(std::isinf(settings.arrival.request_rate));
  EXPECT_EQ(settings.workload.input_len.a, 1024);
  EXPECT_EQ(settings.workload.output_len.a, 128);
  EXPECT_TRUE(settings.workload.text);
  EXPECT_TRUE(settings.workload.token_ids);
  EXPECT_EQ(settings.progress, ProgressStyle::kLines);
  EXPECT_EQ(ParseOptions({}, true).settings->progress, ProgressStyle::kLive);
  EXPECT_EQ(Parsed({"--quiet"}).progress, ProgressStyle::kNone);
}

TEST(OptionsTest, SessionsAreUsedIfTheServerHasThem) {
  EXPECT_EQ(Parsed({"--turns", "3"}).sessions, SessionUse::kAuto);
  EXPECT_EQ(Parsed({"--turns", "3", "--sessions", "off"}).sessions, SessionUse::kOff);
  EXPECT_EQ(Parsed({"--turns", "3", "--sessions", "on"}).sessions, SessionUse::kOn);
}

TEST(OptionsTest, EveryFlagReachesItsSetting) {
  const Settings s = Parsed({"--server",
                             "unix:/run/q",
                             "--model",
                             "m",
                             "--request-rate",
                             "12.5",
                             "--burstiness",
                             "inf",
                             "--max-concurrency",
                             "9",
                             "--num-prompts",
                             "33",
                             "--seed",
                             "5",
                             "--random-input-len",
                             "128:512",
                             "--random-output-len",
                             "normal:64:8",
                             "--random-prefix-len",
                             "40",
                             "--num-prefixes",
                             "3",
                             "--ignore-eos",
                             "--goodput",
                             "ttft:500",
                             "tpot:30.5",
                             "--metadata",
                             "gpu=H200",
                             "--save-detailed",
                             "--no-text",
                             "--priorities",
                             "0:0.9,10:0.1",
                             "--num-warmups",
                             "4",
                             "--cancel-share",
                             "0.5",
                             "--cancel-after",
                             "2:4",
                             "--result-dir",
                             "out"});
  EXPECT_EQ(s.endpoint.server, "unix:/run/q");
  EXPECT_EQ(s.arrival.request_rate, 12.5);
  EXPECT_TRUE(std::isinf(s.arrival.burstiness));
  EXPECT_EQ(s.arrival.max_concurrency, 9);
  EXPECT_EQ(s.workload.num_prompts, 33);
  EXPECT_EQ(s.workload.seed, 5u);
  EXPECT_EQ(s.workload.input_len.kind, LengthSpec::Kind::kUniform);
  EXPECT_EQ(s.workload.input_len.b, 512);
  EXPECT_EQ(s.workload.output_len.kind, LengthSpec::Kind::kNormal);
  EXPECT_EQ(s.workload.prefix_len, 40);
  EXPECT_EQ(s.workload.num_prefixes, 3);
  EXPECT_TRUE(s.workload.ignore_eos);
  EXPECT_FALSE(s.workload.text);
  EXPECT_EQ(s.limits.ttft_ms, 500);
  EXPECT_EQ(s.limits.tpot_ms, 30.5);
  EXPECT_EQ(s.limits.e2e_ms, 0);
  EXPECT_THAT(s.metadata, ElementsAre(Pair("gpu", "H200")));
  EXPECT_TRUE(s.detailed);
  EXPECT_THAT(s.workload.priorities, ElementsAre(Pair(0, 0.9), Pair(10, 0.1)));
  EXPECT_EQ(s.workload.num_warmups, 4);
  EXPECT_EQ(s.workload.cancel_after.a, 2);
  EXPECT_EQ(s.result_dir, "out");
  EXPECT_THAT(s.command_line, HasSubstr("--server unix:/run/q --model m"));
}

TEST(OptionsTest, RampsAndSweeps) {
  const Settings ramp = Parsed(
      {"--ramp-up-strategy", "exponential", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "64"});
  EXPECT_EQ(ramp.arrival.ramp, Ramp::kExponential);
  EXPECT_EQ(ramp.arrival.ramp_end_rps, 64);
  EXPECT_THAT(Parsed({"--sweep", "1,4,16"}).sweep_rates, ElementsAre(1, 4, 16));
}

TEST(OptionsTest, AFileHoldsFlags) {
  const std::string path = testing::TempDir() + "/options_test.toml";
  std::ofstream(path) << "num-prompts=7\nrandom-input-len=\"5:6\"\ngoodput=[\"ttft:3\"]\n";
  const Settings s = Parsed({"--config", path, "--num-prompts", "8"});
  EXPECT_EQ(s.workload.num_prompts, 8);  // the command line beats it
  EXPECT_EQ(s.workload.input_len.b, 6);
  EXPECT_EQ(s.limits.ttft_ms, 3);
  std::ofstream(path) << "num-prompt=7\n";
  EXPECT_THAT(Mistake({"--config", path}), HasSubstr("num-prompt"));
}

TEST(OptionsTest, MistakesNameTheFlagAndWhatItWants) {
  EXPECT_THAT(Mistake({"--request-rate", "0"}),
              AllOf(HasSubstr("--request-rate"), HasSubstr("'0'"), HasSubstr("above 0")));
  EXPECT_THAT(Mistake({"--request-rate", "nan"}), HasSubstr("--request-rate"));
  EXPECT_THAT(Mistake({"--random-input-len", "9:3"}), HasSubstr("128:512"));
  EXPECT_THAT(Mistake({"--random-input-len", "0"}), HasSubstr("--random-input-len"));
  EXPECT_THAT(Mistake({"--num-prompts", "many"}), HasSubstr("--num-prompts"));
  EXPECT_THAT(Mistake({"--lengths", "azure"}), HasSubstr("azure-conversation"));
  EXPECT_THAT(Mistake({"--goodput", "ttl:5"}), HasSubstr("ttft:MS"));
  EXPECT_THAT(Mistake({"--metadata", "gpu"}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(Mistake({"--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(Mistake({"--cancel-share", "1.5"}), HasSubstr("--cancel-share"));
}

TEST(OptionsTest, MistakesAreToldInTheWordsOfTheServersFlags) {
  EXPECT_EQ(Mistake({"--num-prompt", "5", "--channels", "4096"}),
            "quire-load: --num-prompt is no flag; the nearest is --num-prompts\n"
            "quire-load: --channels '4096': must be a whole number, 0 to 1024\n"
            "quire-load --help lists the flags.\n");
  EXPECT_EQ(Mistake({"--backend", "vllm"}),
            "quire-load: --backend: Quire has none, because it speaks quire.v1 over gRPC only\n"
            "quire-load --help lists the flags.\n");
  EXPECT_THAT(Mistake({"--request-rate", "-1"}),
              HasSubstr("--request-rate '-1': must be a number above 0, or inf\n"));
}

TEST(OptionsTest, ValuesAsPeopleWriteThem) {
  const Settings s =
      Parsed({"--server", "localhost", "--num-prompts", "10k", "--time-limit", "5m",
              "--cancel-share", "50%", "--top-p", "90%", "--trust-remote-code", "--no-text"});
  EXPECT_EQ(s.endpoint.server, "localhost:50051");
  EXPECT_EQ(s.workload.num_prompts, 10000);
  EXPECT_EQ(s.time_limit_seconds, 300);
  EXPECT_EQ(s.workload.cancel_share, 0.5);
  EXPECT_EQ(s.workload.top_p, 0.9);
  EXPECT_FALSE(s.workload.text);
}

TEST(OptionsTest, TheManPageAndEveryCompletionNameEveryFlag) {
  OptionWords words;
  const flags::Program program = LoadProgram(&words);
  const std::string page = ParseOptions({"--help-man"}, false).out;
  for (const flags::Flag& flag : program.root.flags) {
    const std::string name(flag.name);
    std::string escaped;
    for (const char c : name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_THAT(page, HasSubstr(escaped));
    for (const char* shell : {"bash", "zsh", "fish"}) {
      EXPECT_THAT(ParseOptions({"--completion", shell}, false).out, HasSubstr(name));
    }
  }
}

TEST(OptionValuesTest, LinesOfAFileOfFlags) {
  EXPECT_THAT(ParseConfigLine("a = \"1:2\"")->values, ElementsAre("1:2"));
  EXPECT_THAT(ParseConfigLine("a=[\"x:1\", y:2]")->values, ElementsAre("x:1", "y:2"));
  EXPECT_TRUE(ParseConfigLine("  # nothing")->values.empty());
  EXPECT_TRUE(ParseConfigLine("")->values.empty());
  for (const char* text : {"a", "=5", "a=[5"}) EXPECT_FALSE(ParseConfigLine(text)) << text;
}

TEST(OptionsTest, ContradictionsSayWhatToLeaveOut) {
  const std::vector<std::vector<std::string>> contradictions = {
      {"--lengths", "azure-code", "--random-input-len", "5"},
      {"--trace", "t", "--random-output-len", "5"},
      {"--prompt-file", "p", "--random-input-len", "5"},
      {"--chat"},
      {"--turns", "3", "--trace", "t"},
      {"--turns", "3", "--no-token-ids"},
      {"--think-time", "3"},
      {"--sessions", "on"},
      {"--sessions", "perhaps", "--turns", "3"},
      {"--ramp-up-strategy", "linear"},
      {"--ramp-up-end-rps", "4"},
      {"--request-rate", "4", "--sweep", "1,2"},
      {"--burstiness", "0.5"},
      {"--concurrency-ramp", "4"},
      {"--duration", "4"},
      {"--deadline", "4"},
      {"--deadline-share", "0.4"},
      {"--cancel-after", "4"},
      {"--slow-reader-delay", "4"},
      {"--num-prefixes", "4"},
      {"--trace-speed", "4"},
      {"--result-filename", "f"},
  };
  for (const auto& args : contradictions) {
    EXPECT_THAT(Mistake(args), HasSubstr(args[0])) << testing::PrintToString(args);
  }
}

TEST(OptionsTest, HelpAndVersionAreNoMistakes) {
  const ParsedOptions help = ParseOptions({"--help"}, false);
  EXPECT_FALSE(help.settings.has_value());
  EXPECT_EQ(help.exit_code, kExitOk);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--request-rate"), HasSubstr("Exit codes")));
  EXPECT_THAT(ParseOptions({"--version"}, false).out, HasSubstr("quire-load"));
}

TEST(OptionValuesTest, NumbersAreWhole) {
  EXPECT_EQ(ParseNumber("1.5e3"), 1500);
  for (const char* text : {"", "1x", " 1", "nan", "inf", "1e999"}) {
    EXPECT_FALSE(ParseNumber(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseRate("-1").has_value());
  EXPECT_TRUE(std::isinf(*ParseRate("inf")));
}

TEST(OptionValuesTest, Lists) {
  for (const char* text : {"", "1,", "1,0", "a"}) EXPECT_FALSE(ParseRates(text)) << text;
  for (const char* text : {"", "1", "1:0", "101:1", "1.5:1", "1:2:3"}) {
    EXPECT_FALSE(ParsePriorities(text)) << text;
  }
  for (const char* text : {"", "1:2:3", "-1:2", "3:2"}) EXPECT_FALSE(ParseRange(text)) << text;
  for (const char* text : {"1.5", "normal:1", "normal:0:1", "normal:5:-1", "1:2:3", "3000000000"}) {
    EXPECT_FALSE(ParseLengthSpec(text, 1)) << text;
  }
  EXPECT_EQ(ParseMetadata("a=b=c")->second, "b=c");
  EXPECT_FALSE(ParseMetadata("=b"));
}

}  // namespace
}  // namespace quire::load
