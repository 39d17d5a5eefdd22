// EngineConfig::Validate: accepts the defaults, refuses contradictions, and names all faults at
// once.
#include "engine/engine_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

using ::testing::ElementsAre;

std::string Faults(const EngineConfig& config) { return std::string(config.Validate().message()); }

TEST(EngineConfigTest, TheDefaultsAreValid) { EXPECT_TRUE(EngineConfig().Validate().ok()); }

TEST(EngineConfigTest, AllFaultsAreListed) {
  EngineConfig config;
  config.max_num_batched_tokens = 1;
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

  EngineConfig brief;
  brief.session_max_ttl_seconds = 60;
  EXPECT_NE(Faults(brief).find("--session-ttl 3600: must not exceed --session-max-ttl (60)"),
            std::string::npos)
      << Faults(brief);
  brief.session_ttl_seconds = 60;
  EXPECT_TRUE(brief.Validate().ok());

  EngineConfig upside_down;
  upside_down.kv_low_watermark = 0.3;
  EXPECT_NE(Faults(upside_down).find("kv_low_watermark"), std::string::npos);
  upside_down.kv_high_watermark = 0.3;
  EXPECT_TRUE(upside_down.Validate().ok());
}

TEST(EngineConfigTest, AContextHoldsAPromptAndAnOutput) {
  EngineConfig config;
  config.max_model_len = 1;
  EXPECT_NE(Faults(config).find("--max-model-len 1: must be at least 2"), std::string::npos);
  config.max_model_len = 2;
  EXPECT_TRUE(config.Validate().ok());
}

TEST(EngineConfigTest, HostMemoryIsASizeNoneOrAutomatic) {
  EngineConfig config;
  for (const double size : {-1.0, 0.0, 0.25, 64.0}) {
    config.kv_offloading_size = size;
    EXPECT_TRUE(config.Validate().ok()) << size;
  }
  config.kv_offloading_size = -0.5;
  EXPECT_NE(Faults(config).find("--kv-offloading-size -0.5: give GiB, 0 for none"),
            std::string::npos);
}

TEST(EngineConfigTest, GraphSizesAreRead) {
  EXPECT_THAT(*GraphSizes("1,2,8", 256), ElementsAre(1, 2, 8));
  EXPECT_THAT(*GraphSizes("8,2,1,2", 4), ElementsAre(1, 2));
  EXPECT_THAT(*GraphSizes("none", 256), ElementsAre());
  EXPECT_THAT(*GraphSizes("auto", 1), ElementsAre(1));
  EXPECT_THAT(*GraphSizes("auto", 20), ElementsAre(1, 2, 4, 8, 16, 20));
  EXPECT_THAT(*GraphSizes("auto", 100),
              ElementsAre(1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 100));
  EXPECT_EQ(GraphSizes("auto", 256)->size(), 23u);
  for (const char* text : {"", ",", "1,", ",1", "1 2", "0", "-1", "1,x", "all", "99999999999"}) {
    EXPECT_FALSE(GraphSizes(text, 256).has_value()) << text;
  }
  EngineConfig config;
  config.cudagraph_capture_sizes = "often";
  EXPECT_NE(Faults(config).find("--cudagraph-capture-sizes often"), std::string::npos);
}

TEST(EngineConfigTest, CudaNeedsWorkerProcesses) {
  EngineConfig config;
  config.worker_process = "off";
  EXPECT_TRUE(config.Validate().ok());
  config.device = "cuda";
  EXPECT_NE(Faults(config).find("--worker-process off"), std::string::npos);
}

TEST(EngineConfigTest, NodesThatDoNotFitAreRefused) {
  EngineConfig leader;
  leader.nnodes = 2;
  leader.tensor_parallel_size = 3;
  leader.worker_process = "off";
  const std::string faults = Faults(leader);
  for (const char* part : {"--nnodes 2: needs --leader-address", "--tensor-parallel-size 3 must be",
                           "--worker-process off"}) {
    EXPECT_NE(faults.find(part), std::string::npos) << faults;
  }
  leader.tensor_parallel_size = 4;
  leader.worker_process = "auto";
  leader.leader_address = "leader:50052";
  EXPECT_TRUE(leader.Validate().ok());

  // A follower learns the number of ranks from its leader.
  EngineConfig follower = leader;
  follower.node_rank = 1;
  follower.tensor_parallel_size = 1;
  EXPECT_TRUE(follower.Validate().ok());
  follower.node_rank = 2;
  EXPECT_NE(Faults(follower).find("--node-rank 2"), std::string::npos);
}

}  // namespace
}  // namespace quire
