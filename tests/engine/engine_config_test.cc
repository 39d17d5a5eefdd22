// EngineConfig::Validate: the defaults pass, every bound holds, and all faults are named at once.
#include "engine/engine_config.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

std::string Faults(const EngineConfig& config) { return std::string(config.Validate().message()); }

TEST(EngineConfigTest, TheDefaultsAreValid) { EXPECT_TRUE(EngineConfig().Validate().ok()); }

void SetNumber(EngineConfig& config, const EngineSetting& setting, int64_t value) {
  if (const auto* narrow = std::get_if<int32_t EngineConfig::*>(&setting.member)) {
    config.*(*narrow) = static_cast<int32_t>(value);
  } else {
    config.*std::get<int64_t EngineConfig::*>(setting.member) = value;
  }
}

TEST(EngineConfigTest, ValuesBeyondABoundAreRefusedByName) {
  for (const EngineSetting& setting : EngineSettings()) {
    if (setting.highest == 0) continue;
    for (const int64_t beyond : {setting.lowest - 1, setting.highest + 1}) {
      EngineConfig config;
      SetNumber(config, setting, beyond);
      EXPECT_NE(Faults(config).find("--" + std::string(setting.name)), std::string::npos)
          << setting.name << " " << beyond;
    }
  }
}

TEST(EngineConfigTest, WordsOutsideTheChoicesAreRefusedByName) {
  for (const EngineSetting& setting : EngineSettings()) {
    const auto* word = std::get_if<std::string EngineConfig::*>(&setting.member);
    if (word == nullptr || setting.choices.empty()) continue;
    for (const char* other : {"", "aut", "auto|cpu", "float", "Auto"}) {
      EngineConfig config;
      config.*(*word) = other;
      EXPECT_NE(Faults(config).find("--" + std::string(setting.name)), std::string::npos) << other;
    }
  }
}

TEST(EngineConfigTest, AllFaultsAreListed) {
  EngineConfig config;
  config.max_num_seqs = 0;
  config.block_size = 20;
  config.num_blocks_override = 1;
  config.steps_in_flight = 3;
  config.max_partial_prefills = 0;
  const std::string faults = Faults(config);
  for (const char* name : {"--max-num-seqs", "--block-size", "--num-blocks-override",
                           "steps_in_flight", "max_partial_prefills"}) {
    EXPECT_NE(faults.find(name), std::string::npos) << faults;
  }
}

TEST(EngineConfigTest, ContradictionsAreRefused) {
  EngineConfig twice;
  twice.num_blocks_override = 100;
  twice.kv_cache_memory_bytes = 1 << 20;
  EXPECT_FALSE(twice.Validate().ok());

  EngineConfig narrow;
  narrow.max_num_seqs = 32;
  narrow.max_num_batched_tokens = 31;
  EXPECT_FALSE(narrow.Validate().ok());
  narrow.max_num_batched_tokens = 32;
  EXPECT_TRUE(narrow.Validate().ok());
}

}  // namespace
}  // namespace quire
