// Settings from flags, environment and file: precedence, names, values, contradictions, documents.
// Covers server/config/foreign_flags.cc, server/config/listening_settings.cc
#include "server/config/config_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "flags/help.h"
#include "server/config/config_table.h"
#include "server/config/foreign_flags.h"
#include "server/config/server_config.h"

namespace quire {
namespace {

using flags::Flag;
using testing::ElementsAre;

ParsedSettings MustParse(const Invocation& invocation) {
  const auto parsed = ParseSettings(invocation);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ParsedSettings();
}

ParsedSettings MustParse(std::vector<std::string> arguments) {
  return MustParse(Invocation{.arguments = std::move(arguments), .environment = {}});
}

std::string FaultOf(const Invocation& invocation) {
  const auto parsed = ParseSettings(invocation);
  EXPECT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

std::string FaultOf(std::vector<std::string> arguments) {
  return FaultOf(Invocation{.arguments = std::move(arguments), .environment = {}});
}

testing::AssertionResult Contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "quire_config_flags_" + name;
  std::ofstream(path) << text;
  return path;
}

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ConfigFlagsTest, DefaultsServeOnLoopback) {
  const ParsedSettings parsed = MustParse(std::vector<std::string>{});
  EXPECT_EQ(parsed.mode, StartMode::kServe);
  EXPECT_EQ(parsed.settings.engine.model, "");
  EXPECT_EQ(parsed.settings.server.front.host, "127.0.0.1");
  EXPECT_EQ(parsed.settings.server.front.port, 50051);
  EXPECT_EQ(parsed.settings.server.metrics_host, "127.0.0.1");
  EXPECT_EQ(parsed.settings.server.metrics_port, 9464);
  for (const EffectiveSetting& setting : ListSettings(parsed)) {
    EXPECT_EQ(setting.source, SettingSource::kDefault) << setting.name;
  }
}

TEST(ConfigFlagsTest, BothSpellingsOfAValueAndUnderscores) {
  EXPECT_EQ(MustParse({"--max-num-seqs", "7"}).settings.engine.max_num_seqs, 7);
  EXPECT_EQ(MustParse({"--max-num-seqs=8"}).settings.engine.max_num_seqs, 8);
  EXPECT_EQ(MustParse({"--max_num_seqs", "9"}).settings.engine.max_num_seqs, 9);
  EXPECT_TRUE(MustParse({"--max_num_seqs", "9"}).notices.empty());
}

TEST(ConfigFlagsTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const std::string file =
      WriteFile("all.json", R"({"port": 1001, "max-num-seqs": 11, "log-level": "debug"})");
  const ParsedSettings parsed =
      MustParse(Invocation{.arguments = {"--port", "3003", "--config", file},
                           .environment = {{"QUIRE_PORT", "2002"}, {"QUIRE_MAX_NUM_SEQS", "22"}}});
  EXPECT_EQ(parsed.settings.server.front.port, 3003);
  EXPECT_EQ(parsed.settings.engine.max_num_seqs, 22);
  EXPECT_EQ(parsed.settings.server.log_level, "debug");
  for (const EffectiveSetting& setting : ListSettings(parsed)) {
    if (setting.name == "port") {
      EXPECT_EQ(setting.source, SettingSource::kFlag);
    }
    if (setting.name == "max-num-seqs") {
      EXPECT_EQ(setting.source, SettingSource::kEnvironment);
    }
    if (setting.name == "log-level") {
      EXPECT_EQ(setting.source, SettingSource::kFile);
    }
    if (setting.name == "host") {
      EXPECT_EQ(setting.source, SettingSource::kDefault);
    }
  }
}

TEST(ConfigFlagsTest, TheEnvironmentNamesTheFile) {
  const std::string file = WriteFile("env.json", R"({"port": 1001})");
  const ParsedSettings parsed =
      MustParse(Invocation{.arguments = {}, .environment = {{"QUIRE_CONFIG", file}}});
  EXPECT_EQ(parsed.settings.server.front.port, 1001);
}

TEST(ConfigFlagsTest, UnitsAreUnderstood) {
  EXPECT_EQ(MustParse({"--kv-cache-memory-bytes", "64MiB"}).settings.engine.kv_cache_memory_bytes,
            67108864);
  EXPECT_EQ(MustParse({"--kv-cache-memory-bytes", "1.5 GiB"}).settings.engine.kv_cache_memory_bytes,
            1610612736);
  EXPECT_EQ(MustParse({"--kv-cache-memory-bytes", "4096"}).settings.engine.kv_cache_memory_bytes,
            4096);
  EXPECT_EQ(MustParse({"--kv-offloading-size", "4"}).settings.engine.kv_offloading_size, 4);
  EXPECT_EQ(MustParse({"--kv-offloading-size", "512MiB"}).settings.engine.kv_offloading_size, 0.5);
  EXPECT_EQ(MustParse({"--kv-offloading-size", "2 TiB"}).settings.engine.kv_offloading_size, 2048);
  EXPECT_EQ(MustParse({"--kv-cache-memory-bytes", "64GB"}).settings.engine.kv_cache_memory_bytes,
            64'000'000'000);
  EXPECT_EQ(MustParse({"--kv-offloading-size", "2147483648k"}).settings.engine.kv_offloading_size,
            2000);
  EXPECT_EQ(MustParse({"--shutdown-timeout", "2min"}).settings.server.shutdown_timeout_seconds,
            120);
  EXPECT_EQ(MustParse({"--drain-delay", "250ms"}).settings.server.drain_delay_seconds, 0.25);
  EXPECT_EQ(MustParse({"--hung-after", "30"}).settings.server.hung_after_seconds, 30);
  EXPECT_EQ(MustParse({"--session-ttl", "30m"}).settings.engine.session_ttl_seconds, 1800);
  EXPECT_EQ(MustParse({"--session-max-ttl", "2d"}).settings.engine.session_max_ttl_seconds, 172800);
}

// As vLLM reads --max-model-len: small letters count in 1000s, capitals in 1024s.
TEST(ConfigFlagsTest, CountsShortenedByALetter) {
  EXPECT_EQ(MustParse({"--max-model-len", "32k"}).settings.engine.max_model_len, 32000);
  EXPECT_EQ(MustParse({"--max-model-len", "32K"}).settings.engine.max_model_len, 32768);
  EXPECT_EQ(MustParse({"--max-model-len", "25.6k"}).settings.engine.max_model_len, 25600);
  EXPECT_EQ(MustParse({"--max-model-len", "1m"}).settings.engine.max_model_len, 1000000);
}

TEST(ConfigFlagsTest, SharesAsPercentages) {
  EXPECT_EQ(MustParse({"--gpu-memory-utilization", "90%"}).settings.engine.gpu_memory_utilization,
            0.9);
  EXPECT_EQ(MustParse({"--session-pin-share", "55 %"}).settings.engine.session_pin_share, 0.55);
  EXPECT_TRUE(Contains(FaultOf({"--gpu-memory-utilization", "90"}),
                       "'90': must be a number, 0.05 to 1, or a percentage such as 90%"));
  EXPECT_TRUE(Contains(FaultOf({"--gpu-memory-utilization", "nan"}),
                       "--gpu-memory-utilization 'nan': must be a number, 0.05 to 1"));
}

TEST(ConfigFlagsTest, WordsHaveOtherSpellings) {
  EXPECT_EQ(MustParse({"--dtype", "half"}).settings.engine.dtype, "float16");
  EXPECT_EQ(MustParse({"--dtype", "float"}).settings.engine.dtype, "float32");
  EXPECT_EQ(MustParse({"--kv-cache-dtype", "bf16"}).settings.engine.kv_cache_dtype, "bfloat16");
  EXPECT_EQ(MustParse({"--kv-cache-dtype", "fp8_e4m3"}).settings.engine.kv_cache_dtype, "fp8");
  EXPECT_EQ(MustParse({"--log-level", "warn"}).settings.server.log_level, "warning");
  EXPECT_EQ(MustParse({"--log-level", "INFO"}).settings.server.log_level, "info");
}

TEST(ConfigFlagsTest, TheModelMayStandAlone) {
  EXPECT_EQ(MustParse({"/path/to/model"}).settings.engine.model, "/path/to/model");
  EXPECT_EQ(MustParse({"--port", "1", "/m", "--dry-run"}).settings.engine.model, "/m");
  EXPECT_EQ(MustParse({"--trust-remote-code", "/m"}).settings.engine.model, "/m");
  EXPECT_TRUE(MustParse({"/m"}).notices.empty());
  EXPECT_TRUE(Contains(FaultOf({"/m", "--model", "/n"}),
                       "--model and PATH are the same setting: give it once"));
  EXPECT_TRUE(Contains(FaultOf({"/m", "/n"}), "unexpected argument '/n': quire-server takes PATH"));
}

TEST(ConfigFlagsTest, NamesTheDirectoryOfTheTokenizer) {
  const auto directory = [](std::vector<std::string> arguments) {
    return TextDirectory(MustParse(std::move(arguments)).settings);
  };
  EXPECT_EQ(directory({"--model", "/m"}), "/m");
  EXPECT_EQ(directory({"--model", "/m", "--tokenizer", "/t"}), "/t");
  EXPECT_EQ(directory({"--model", "/m", "--skip-tokenizer-init"}), "");
  EXPECT_TRUE(Contains(FaultOf({"--tokenizer", "/t", "--skip-tokenizer-init"}),
                       "--tokenizer and --skip-tokenizer-init exclude each other"));
  EXPECT_TRUE(Contains(FaultOf({"--chat-template", "/t", "--skip-tokenizer-init"}),
                       "--chat-template and --skip-tokenizer-init exclude each other"));
}

TEST(ConfigFlagsTest, ParsersAreFamilies) {
  const ServerConfig config =
      MustParse({"--reasoning-parser", "qwen3", "--tool-call-parser", "none"}).settings.server;
  EXPECT_EQ(config.reasoning_parser, "qwen3");
  EXPECT_EQ(config.tool_call_parser, "none");
  EXPECT_TRUE(Contains(FaultOf({"--reasoning-parser", "o1"}), "one of deepseek_r1, qwen3"));
  EXPECT_TRUE(Contains(FaultOf({"--tool-call-parser", "pythonic"}), "one of hermes, qwen"));
}

TEST(ConfigFlagsTest, SeveralServedNames) {
  const auto names = [](std::vector<std::string> arguments) {
    return MustParse(std::move(arguments)).settings.server.served_model_names;
  };
  EXPECT_THAT(names({"--served-model-name", "a", "b", "--port", "1"}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"--served-model-name=a,b"}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"--alias", "a", "--alias", "b"}), ElementsAre("a", "b"));
  const std::string file = WriteFile("names.json", R"({"served-model-name": ["a", "b"]})");
  EXPECT_THAT(names({"--config", file}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"--config", file, "--served-model-name", "c"}), ElementsAre("c"));
  EXPECT_TRUE(Contains(FaultOf({"--served-model-name", "a,"}), "names, with commas between them"));
}

// Each kind of answer, in its exact words.
TEST(ConfigFlagsTest, FlagsOfOtherServersAreAnswered) {
  EXPECT_EQ(FaultOf({"--seed", "5"}),
            "--seed: Quire has none, because each request has its own seed (sampling.seed, quire "
            "generate --seed)");
  EXPECT_EQ(FaultOf({"--enforce-eager"}),
            "--enforce-eager: Quire has --cudagraph-capture-sizes none instead");
  EXPECT_EQ(FaultOf({"-ngl", "99"}),
            "-ngl: Quire has --device cuda or --device cpu, for all layers, instead");
  EXPECT_TRUE(Contains(FaultOf({"--api-key=secret"}), "--api-key: Quire has none, because it "));
  EXPECT_TRUE(Contains(FaultOf(Invocation{.arguments = {}, .environment = {{"QUIRE_SEED", "5"}}}),
                       "QUIRE_SEED: Quire has none, because"));
  EXPECT_THAT(MustParse({"--trust-remote-code", "--port", "1"}).notices,
              ElementsAre("--trust-remote-code has no effect: Quire never runs code of a "
                          "checkpoint"));
  EXPECT_EQ(MustParse({"-fa", "on", "--attention-backend", "x", "/m"}).settings.engine.model, "/m");
}

TEST(ConfigFlagsTest, FarNamesAreNotSuggested) {
  EXPECT_EQ(FaultOf({"--bogus", "1"}), "--bogus is no setting");
  EXPECT_EQ(FaultOf({"--modle", "/m"}), "--modle is no setting; the nearest is --model");
}

TEST(ConfigFlagsTest, SwitchesGoBothWays) {
  EXPECT_TRUE(MustParse({"--reflection"}).settings.server.front.reflection);
  EXPECT_FALSE(MustParse({"--no-reflection"}).settings.server.front.reflection);
  EXPECT_FALSE(MustParse({"--reflection=false"}).settings.server.front.reflection);
  EXPECT_FALSE(MustParse({"--reflection", "false"}).settings.server.front.reflection);
  EXPECT_FALSE(
      MustParse({"--enable-prefix-caching", "false"}).settings.engine.enable_prefix_caching);
  EXPECT_FALSE(MustParse({"--reflection=off"}).settings.server.front.reflection);
  EXPECT_EQ(MustParse({"--dry-run"}).mode, StartMode::kDryRun);
  EXPECT_EQ(MustParse({"/m", "--check"}).mode, StartMode::kCheck);
  EXPECT_TRUE(Contains(FaultOf({"--check", "--dry-run"}), "--check and --dry-run exclude"));
  EXPECT_TRUE(MustParse({"--kv-checksum"}).settings.engine.kv_checksum);
  EXPECT_FALSE(MustParse({"--no-enable-prefix-caching"}).settings.engine.enable_prefix_caching);
  EXPECT_TRUE(Contains(FaultOf({"--reflection", "--no-reflection"}), "give it once"));
  EXPECT_TRUE(Contains(FaultOf({"--no-model"}), "no setting"));
}

TEST(ConfigFlagsTest, UnknownNamesGetTheNearestOne) {
  EXPECT_TRUE(Contains(FaultOf({"--max-num-seq", "4"}), "--max-num-seq is no setting"));
  EXPECT_TRUE(Contains(FaultOf({"--max-num-seq", "4"}), "nearest is --max-num-seqs"));
  EXPECT_TRUE(Contains(FaultOf({"--prot=1"}), "--port"));
  EXPECT_TRUE(Contains(FaultOf({"--contextlength", "4"}), "--max-model-len"));
  EXPECT_TRUE(
      Contains(FaultOf(Invocation{.arguments = {}, .environment = {{"QUIRE_MAXNUMSEQS", "4"}}}),
               "QUIRE_MAXNUMSEQS is no setting; the nearest is QUIRE_MAX_NUM_SEQS"));
  const std::string file = WriteFile("typo.json", R"({"log-formatt": "json"})");
  EXPECT_TRUE(Contains(FaultOf({"--config", file}), "the nearest is log-format"));
}

TEST(ConfigFlagsTest, AliasesOfOtherServersAreAcceptedWithANotice) {
  const ParsedSettings parsed =
      MustParse({"--model-path", "/m", "--tp", "2", "--context-length=128", "-np", "4"});
  EXPECT_EQ(parsed.settings.engine.model, "/m");
  EXPECT_EQ(parsed.settings.engine.tensor_parallel_size, 2);
  EXPECT_EQ(parsed.settings.engine.max_model_len, 128);
  EXPECT_EQ(parsed.settings.engine.max_num_seqs, 4);
  ASSERT_EQ(parsed.notices.size(), 4u);
  EXPECT_TRUE(Contains(parsed.notices[0], "--model-path"));
  EXPECT_TRUE(Contains(parsed.notices[0], "called model"));
  EXPECT_TRUE(Contains(FaultOf({"--tp", "2", "--tensor-parallel-size", "2"}), "give it once"));
}

TEST(ConfigFlagsTest, ValuesOutOfBoundsSayWhatIsAccepted) {
  EXPECT_TRUE(Contains(FaultOf({"--max-num-seqs", "0"}),
                       "--max-num-seqs '0': must be a whole number, 1 to 4096"));
  EXPECT_TRUE(Contains(FaultOf({"--port", "-1"}), "0 to 65535"));
  EXPECT_TRUE(Contains(FaultOf({"--port", "1.5"}), "whole number"));
  EXPECT_TRUE(Contains(FaultOf({"--port", "80 "}), "0 to 65535"));
  EXPECT_TRUE(Contains(FaultOf({"--port", "nan"}), "0 to 65535"));
  EXPECT_TRUE(Contains(FaultOf({"--port="}), "0 to 65535"));
  EXPECT_TRUE(Contains(FaultOf({"--port", "99999999999999999999999"}), "0 to 65535"));
  EXPECT_TRUE(Contains(FaultOf({"--kv-cache-memory-bytes", "64XB"}), "KiB, MiB, GiB, TiB"));
  EXPECT_TRUE(Contains(FaultOf({"--kv-offloading-size", "64XB"}),
                       "-1 to 65536 GiB, or with MB, GB, TB or MiB, GiB, TiB"));
  EXPECT_TRUE(Contains(FaultOf({"--max-model-len", "32x"}),
                       "a whole number, 0 to 16777216; 32k is 32000, 32K is 32768"));
  EXPECT_TRUE(
      Contains(FaultOf({"--session-ttl", "soon"}), "in seconds or as 250ms, 90s, 30m, 2h, 1d"));
  EXPECT_TRUE(Contains(FaultOf({"--log-format", "xml"}), "one of text, json"));
  EXPECT_TRUE(Contains(FaultOf({"--dtype", "int8"}), "auto, float32, bfloat16, float16"));
  EXPECT_TRUE(Contains(FaultOf({"--reflection=maybe"}), "true or false"));
  EXPECT_TRUE(Contains(FaultOf({"--block-size", "17"}), "16, 32 or 64"));
}

TEST(ConfigFlagsTest, EveryFaultIsListedAtOnce) {
  const std::string faults = FaultOf({"--port", "x", "--bogus", "1", "--max-num-seqs", "0"});
  EXPECT_TRUE(Contains(faults, "--port"));
  EXPECT_TRUE(Contains(faults, "--bogus"));
  EXPECT_TRUE(Contains(faults, "--max-num-seqs"));
}

TEST(ConfigFlagsTest, MissingAndStrayValuesAreErrors) {
  EXPECT_TRUE(Contains(FaultOf({"--model"}), "--model needs a value"));
  EXPECT_TRUE(Contains(FaultOf({"--model", "--port", "1"}), "--model needs a value"));
  EXPECT_TRUE(Contains(FaultOf({"---"}), "unexpected argument '---'"));
  EXPECT_TRUE(Contains(FaultOf({"-"}), "unexpected argument"));
  EXPECT_TRUE(Contains(FaultOf({""}), "unexpected argument"));
  EXPECT_TRUE(Contains(FaultOf({"--=5"}), "unexpected argument"));
}

TEST(ConfigFlagsTest, ContradictionsAreErrorsWhereverTheyComeFrom) {
  EXPECT_TRUE(Contains(FaultOf({"--uds", "/tmp/q", "--port", "1"}), "--uds and --port contradict"));
  EXPECT_TRUE(Contains(FaultOf(Invocation{.arguments = {"--uds", "/tmp/q"},
                                          .environment = {{"QUIRE_HOST", "127.0.0.1"}}}),
                       "--uds and --host contradict"));
  EXPECT_TRUE(Contains(FaultOf({"--num-blocks-override", "9", "--kv-cache-memory-bytes", "1MiB"}),
                       "give one"));
  EXPECT_TRUE(Contains(FaultOf({"--port", "7", "--metrics-port", "7"}), "a port each"));
  EXPECT_TRUE(Contains(FaultOf({"--uds", "/run/q", "--admin-uds", "/run/q"}), "of its own"));
  EXPECT_TRUE(Contains(FaultOf({"--session-ttl", "2h", "--session-max-ttl", "1h"}),
                       "must not exceed --session-max-ttl (3600)"));
  EXPECT_TRUE(Contains(FaultOf({"--kv-offloading-size", "-0.5"}), "0 for none"));
  EXPECT_TRUE(Contains(FaultOf({"--max-num-seqs", "300", "--max-num-batched-tokens", "299"}),
                       "at least --max-num-seqs"));
  EXPECT_EQ(MustParse({"--uds", "/tmp/q"}).settings.server.front.uds, "/tmp/q");
}

TEST(ConfigFlagsTest, PlaintextBeyondLoopbackIsRefusedWithAWayOut) {
  for (const char* host : {"0.0.0.0", "::", "10.1.2.3", "example.org"}) {
    const std::string fault = FaultOf({"--host", host});
    EXPECT_TRUE(Contains(fault, "plaintext"));
    EXPECT_TRUE(Contains(fault, "--uds"));
    EXPECT_TRUE(Contains(fault, "HAProxy"));
    EXPECT_TRUE(Contains(fault, "--insecure-plaintext"));
    EXPECT_TRUE(Contains(FaultOf({"--host", host, "--no-insecure-plaintext"}), "plaintext"));
    const ParsedSettings open = MustParse({"--host", host, "--insecure-plaintext"});
    EXPECT_EQ(open.settings.server.front.host, host);
    EXPECT_TRUE(open.settings.server.front.insecure_plaintext);
    EXPECT_TRUE(open.settings.server.BeyondThisMachine());
  }
  const ParsedSettings local = MustParse({"--insecure-plaintext"});
  EXPECT_FALSE(local.settings.server.BeyondThisMachine());
  EXPECT_EQ(MustParse({"--host", "::1"}).settings.server.front.host, "::1");
}

TEST(ConfigFlagsTest, AServerThatAnyPeerMayUseIsWarnedOf) {
  const auto exposure = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--host", "0.0.0.0"});
    return MustParse(flags).settings.server.Exposure();
  };
  EXPECT_TRUE(Contains(exposure({"--insecure-plaintext"}), "each peer"));
  EXPECT_TRUE(Contains(exposure({"--insecure-plaintext", "--api-keys", "k"}), "not encrypted"));
  EXPECT_TRUE(Contains(exposure({"--ssl-certfile", "c"}), "--api-keys"));
  EXPECT_TRUE(Contains(
      exposure({"--ssl-certfile", "c", "--ssl-ca-certs", "a", "--ssl-cert-reqs", "optional"}),
      "each peer"));
  EXPECT_EQ(exposure({"--ssl-certfile", "c", "--ssl-ca-certs", "a"}), "");
  EXPECT_EQ(exposure({"--ssl-certfile", "c", "--api-keys", "k"}), "");
  EXPECT_EQ(MustParse(std::vector<std::string>{}).settings.server.Exposure(), "");
}

TEST(ConfigFlagsTest, FilesThatAreNoFlatObjectAreRefused) {
  EXPECT_TRUE(Contains(FaultOf({"--config", "/nonexistent/q.json"}), "/nonexistent/q.json"));
  EXPECT_TRUE(Contains(FaultOf({"--config", WriteFile("list.json", "[1]")}), "one JSON object"));
  EXPECT_TRUE(Contains(FaultOf({"--config", WriteFile("null.json", R"({"port": null})")}),
                       "must be a string"));
  EXPECT_FALSE(FaultOf({"--config", WriteFile("deep.json", R"({"port": [[[1]]]})")}).empty());
  EXPECT_FALSE(FaultOf({"--config", WriteFile("twice.json", R"({"port":1,"port":2})")}).empty());
  EXPECT_FALSE(FaultOf({"--config", WriteFile("broken.json", R"({"port":)")}).empty());
  const std::string twice = WriteFile("alias.json", R"({"max-num-seqs":1,"max_num_seqs":2})");
  EXPECT_TRUE(Contains(FaultOf({"--config", twice}), "give it once"));
}

// A pod beside a Kubernetes Service named "quire" gets these from the cluster.
TEST(ConfigFlagsTest, KubernetesServiceLinksAreNotSettings) {
  const ParsedSettings parsed =
      MustParse(Invocation{.arguments = {},
                           .environment = {{"QUIRE_SERVICE_HOST", "10.0.0.1"},
                                           {"QUIRE_SERVICE_PORT", "50051"},
                                           {"QUIRE_SERVICE_PORT_GRPC", "50051"},
                                           {"QUIRE_PORT", "tcp://10.0.0.1:50051"},
                                           {"QUIRE_SERVER_SERVICE_HOST", "10.0.0.1"},
                                           {"QUIRE_SERVER_SERVICE_PORT_GRPC", "50051"},
                                           {"QUIRE_SERVER_PORT", "tcp://10.0.0.1:50051"},
                                           {"QUIRE_SERVER_PORT_50051_TCP_PROTO", "tcp"},
                                           {"QUIRE_PORT_50051_TCP", "tcp://10.0.0.1:50051"},
                                           {"QUIRE_PORT_50051_TCP_ADDR", "10.0.0.1"}}});
  EXPECT_EQ(parsed.settings.server.front.port, 50051);
  ASSERT_EQ(parsed.notices.size(), 1u);
  EXPECT_TRUE(Contains(parsed.notices[0], "Kubernetes"));
}

TEST(ConfigFlagsTest, AnEmptyVariableIsNotSet) {
  const ParsedSettings parsed = MustParse(
      Invocation{.arguments = {}, .environment = {{"QUIRE_PORT", ""}, {"QUIRE_MODEL", ""}}});
  EXPECT_EQ(parsed.settings.server.front.port, 50051);
}

TEST(ConfigFlagsTest, HelpAndVersionWinOverEverythingElse) {
  EXPECT_EQ(MustParse({"--help", "--version"}).mode, StartMode::kHelp);
  EXPECT_EQ(MustParse({"-h"}).mode, StartMode::kHelp);
  EXPECT_EQ(MustParse({"--version", "--config", "/nonexistent"}).mode, StartMode::kVersion);
}

// The table itself.

TEST(ConfigFlagsTest, TlsOpensOtherAddressesAndContradictionsAreNamed) {
  const ParsedSettings open = MustParse({"--host", "0.0.0.0", "--ssl-certfile", "c.pem"});
  EXPECT_EQ(open.settings.server.front.tls.certificate, "c.pem");
  EXPECT_EQ(open.settings.server.front.tls.RequiredOfClients(), ClientCertificates::kNone);
  const ParsedSettings mutual =
      MustParse({"--ssl-certfile", "c.pem", "--ssl-keyfile", "k.pem", "--ssl-ca-certs", "a.pem"});
  EXPECT_EQ(mutual.settings.server.front.tls.RequiredOfClients(), ClientCertificates::kRequired);
  const ParsedSettings numbered =
      MustParse({"--ssl-certfile", "c.pem", "--ssl-ca-certs", "a.pem", "--ssl-cert-reqs", "1"});
  EXPECT_EQ(numbered.settings.server.front.tls.RequiredOfClients(), ClientCertificates::kOptional);

  const std::pair<std::vector<std::string>, const char*> contradictions[] = {
      {{"--ssl-keyfile", "k.pem"}, "--ssl-keyfile needs --ssl-certfile"},
      {{"--ssl-ca-certs", "a.pem"}, "--ssl-ca-certs needs --ssl-certfile"},
      {{"--ssl-cert-reqs", "required"}, "--ssl-cert-reqs needs --ssl-certfile"},
      {{"--ssl-certfile", "c.pem", "--uds", "/tmp/q"}, "--ssl-certfile and --uds exclude"},
      {{"--ssl-certfile", "c.pem", "--insecure-plaintext"}, "leave one out"},
      {{"--ssl-certfile", "c.pem", "--ssl-cert-reqs", "2"}, "required needs --ssl-ca-certs"},
      {{"--ssl-certfile", "c.pem", "--ssl-ca-certs", "a.pem", "--ssl-cert-reqs", "none"},
       "has no effect"},
  };
  for (const auto& [arguments, words] : contradictions) {
    EXPECT_TRUE(Contains(FaultOf(arguments), words));
  }
}

TEST(ConfigFlagsTest, VariablesOfTheClientsAreNoSettings) {
  const Invocation invocation{.environment = {{"QUIRE_SERVER", "gpu:1"},
                                              {"QUIRE_SERVER_NAME", "gpu.example"},
                                              {"QUIRE_TLS", "1"},
                                              {"QUIRE_CA_CERT", "ca.pem"},
                                              {"QUIRE_API_KEY", "qk-x"},
                                              {"QUIRE_HEADERS", "a: b"},
                                              {"QUIRE_PROFILE", "gpu"}}};
  const ParsedSettings parsed = MustParse(invocation);
  EXPECT_EQ(parsed.settings.server.front.host, "127.0.0.1");
  EXPECT_TRUE(parsed.notices.empty());
}

TEST(ConfigTableTest, NamesAreUniqueAndFew) {
  Settings settings;
  std::set<std::string_view> names;
  const std::vector<Flag> table = SettingsTable(&settings);
  for (const Flag& row : table) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_LE(names.size(), 76u);
}

TEST(ConfigTableTest, AnswersToOtherServersFlagsShadowNoSetting) {
  Settings settings;
  std::string config;
  const flags::Program program = ServerProgram(&settings, &config);
  std::set<std::string> foreign;
  for (const flags::ForeignFlag& row : ForeignFlags()) {
    std::istringstream names{std::string(row.names)};
    for (std::string name; std::getline(names, name, '|');) {
      EXPECT_TRUE(foreign.insert(name).second) << name << " is answered twice";
      EXPECT_EQ(flags::FindFlag({&program.root}, name), nullptr) << name;
    }
    EXPECT_FALSE(row.sentence.ends_with(".")) << row.sentence;
  }
}

// A value that is read and written again is unchanged: for every default, so for every kind of
// row.
TEST(ConfigTableTest, DefaultsAreWithinTheirBoundsAndSurviveARoundTrip) {
  Settings settings;
  for (const Flag& row : SettingsTable(&settings)) {
    const std::string text = flags::ValueText(row);
    if (flags::IsList(row)) continue;  // empty by default
    EXPECT_TRUE(flags::SetValue(row, text).ok()) << row.name << " " << text;
    EXPECT_EQ(flags::ValueText(row), text) << row.name;
  }
}

TEST(ConfigTableTest, BothEndsOfEveryRangeAreAcceptedAndNothingBeyond) {
  Settings settings;
  for (const Flag& row : SettingsTable(&settings)) {
    if (row.highest == 0) continue;
    for (const double end : {row.lowest, row.highest}) {
      EXPECT_TRUE(flags::SetValue(row, std::to_string(end)).ok()) << row.name << " " << end;
    }
    for (const double beyond : {row.lowest - 1, row.highest + 1}) {
      EXPECT_FALSE(flags::SetValue(row, std::to_string(beyond)).ok()) << row.name << beyond;
    }
  }
}

TEST(ConfigTableTest, WordsOutsideTheChoicesAreRefused) {
  Settings settings;
  for (const Flag& row : SettingsTable(&settings)) {
    if (row.choices.empty()) continue;
    for (const char* other : {"", "aut", "auto|cpu"}) {
      EXPECT_FALSE(flags::SetValue(row, other).ok()) << row.name << " " << other;
    }
  }
}

TEST(ConfigTableTest, HelpShowsEverySetting) {
  const std::string help = MustParse({"--help"}).answer;
  Settings settings;
  for (const Flag& row : SettingsTable(&settings)) {
    EXPECT_TRUE(Contains(help, std::string(row.name)));
    EXPECT_TRUE(Contains(help, std::string(row.help)));
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST(ConfigTableTest, TheManPageAndEveryCompletionNameEverySetting) {
  const std::string page = MustParse({"--help-man"}).answer;
  Settings settings;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = MustParse({"--completion", shell}).answer;
    for (const Flag& row : SettingsTable(&settings)) {
      EXPECT_TRUE(Contains(script, std::string(row.name))) << shell;
    }
  }
  for (const Flag& row : SettingsTable(&settings)) {
    std::string escaped;
    for (const char c : row.name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_TRUE(Contains(page, escaped));
  }
}

// docs/configuration.md has one line for each row, with the same default and bounds, and one for
// each row with other servers' names.
TEST(ConfigTableTest, TheDocumentMatchesTheTable) {
  const std::string document = ReadText(QUIRE_SOURCE_DIR "/docs/configuration.md");
  Settings settings;
  for (const Flag& row : SettingsTable(&settings)) {
    const std::string text = flags::ValueText(row);
    const std::string line = "| `--" + std::string(row.name) + "` | " +
                             (text.empty() ? std::string(row.unset) : "`" + text + "`") + " | " +
                             flags::AcceptedValues(row) + " | " + std::string(row.help) + " |\n";
    EXPECT_TRUE(document.find(line) != std::string::npos) << "missing line: " << line;
    if (row.aliases.empty()) continue;
    std::string names = "| `--" + std::string(row.name) + "` |";
    std::istringstream aliases{std::string(row.aliases)};
    const char* separator = " ";
    for (std::string alias; std::getline(aliases, alias, '|'); separator = ", ") {
      names +=
          separator + std::string(alias.size() > 2 || alias == "tp" ? "`--" : "`-") + alias + "`";
    }
    EXPECT_TRUE(document.find(names + " |\n") != std::string::npos) << "missing line: " << names;
  }
}

TEST(ConfigFlagsTest, StandardVariablesOfOpenTelemetryGiveWayToOurs) {
  const auto endpoint = [](const Invocation& invocation) {
    return MustParse(invocation).settings.server.otlp_endpoint;
  };
  const std::pair<std::string, std::string> general{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:1"};
  const std::pair<std::string, std::string> traces{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                                                   "localhost:2"};
  const std::pair<std::string, std::string> ours{"QUIRE_OTLP_ENDPOINT", "localhost:3"};
  EXPECT_EQ(endpoint({}), "");
  EXPECT_EQ(endpoint({.arguments = {}, .environment = {general}}), "localhost:1");
  EXPECT_EQ(endpoint({.arguments = {}, .environment = {general, traces}}), "localhost:2");
  EXPECT_EQ(endpoint({.arguments = {}, .environment = {general, traces, ours}}), "localhost:3");
  EXPECT_EQ(endpoint({.arguments = {"--otlp-endpoint", "localhost:4"}, .environment = {general}}),
            "localhost:4");
  const ParsedSettings named =
      MustParse({.arguments = {},
                 .environment = {{"OTEL_SERVICE_NAME", "chat"}, {"OTEL_LOG_LEVEL", "debug"}}});
  EXPECT_EQ(named.settings.server.otlp_service_name, "chat");
}

// A cluster sets them for programs of all kinds.
TEST(ConfigFlagsTest, StandardVariablesThatQuireCannotUseAreNotices) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto notice = [](const Variables& environment) {
    const ParsedSettings parsed = MustParse({.arguments = {}, .environment = environment});
    EXPECT_EQ(parsed.settings.server.otlp_endpoint, "");
    return parsed.notices.empty() ? "" : parsed.notices.front();
  };
  const std::string name = "OTEL_EXPORTER_OTLP_ENDPOINT";
  EXPECT_TRUE(Contains(notice({{name, "http://collector:4318/v1/traces"}}), "gRPC port"));
  EXPECT_TRUE(Contains(notice({{name, "http://collector:4318/v1/traces"}}), name));
  EXPECT_TRUE(Contains(notice({{name, "collector:4317"}}), "write http://collector:4317"));
  EXPECT_TRUE(
      Contains(notice({{name, "http://a:4318"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}}),
               "http/protobuf"));
  EXPECT_EQ(notice({{name, "http://a:4317"}, {"OTEL_SDK_DISABLED", "true"}}), "");
  EXPECT_EQ(notice({{name, "http://a:4317"}, {"OTEL_TRACES_EXPORTER", "none"}}), "");
}

TEST(ConfigFlagsTest, AnEndpointBeyondThisMachineSaysHowItIsReached) {
  EXPECT_TRUE(Contains(FaultOf({"--otlp-endpoint", "collector:4317"}), "http://collector:4317"));
  for (const std::string good :
       {"127.0.0.1:4317", "localhost:4317", "http://collector:4317", "https://collector:4317"}) {
    EXPECT_EQ(MustParse({"--otlp-endpoint", good}).settings.server.otlp_endpoint, good);
  }
}

TEST(ConfigTableTest, TheExampleFileIsValid) {
  const ParsedSettings parsed = MustParse({"--config", QUIRE_SOURCE_DIR "/deploy/config.example"});
  EXPECT_EQ(parsed.settings.server.log_format, "json");
}

}  // namespace
}  // namespace quire
