// PlanEngine: the plan for given settings and facts of a device. The GPUs here are only numbers, so
// the tests need no device.
#include "engine/engine_setup.h"

#include "engine/worker/rank/worker_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_limits.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/temp_dir.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// The shape of Llama-3.1-8B; only config.json is there.
class EngineSetupTest : public ::testing::Test {
 protected:
  EngineSetupTest() {
    WriteModel("");
    config_.model = dir_.path();
    config_.device = "cuda";
  }
  // `changes`: members that replace those of the same name.
  void WriteModel(const std::string& changes) {
    auto json = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
      "hidden_act": "silu"})");
    json.update(nlohmann::json::parse("{" + changes + "}"));
    dir_.Write("config.json", json.dump());
  }
  absl::StatusOr<EngineSetup> Plan(int64_t total = 141 * kGiB, int64_t used = kGiB) {
    return PlanEngine(config_,
                      {.kind = "cuda",
                       .name = "a GPU of paper",
                       .total_bytes = total,
                       .free_bytes = total - used,
                       .backend_bytes = 512 * kMiB},
                      host_);
  }
  std::string Refusal() { return std::string(Plan().status().message()); }
  static int64_t Part(const EngineSetup& setup, const std::string& name) {
    for (const MemoryPlan::Part& part : setup.memory.parts) {
      if (part.name == name) return part.bytes;
    }
    ADD_FAILURE() << "no part " << name;
    return 0;
  }

  const testing::TempDir dir_;
  EngineConfig config_;
  int64_t host_ = 512 * kGiB;
};

TEST_F(EngineSetupTest, DynamicRotationIsPlainUnlessALongerContextIsAsked) {
  WriteModel(R"("rope_scaling": {"type": "dynamic", "factor": 2.0},
             "max_position_embeddings": 4096)");
  EXPECT_EQ(Plan()->config.max_model_len, 4096);
  config_.max_model_len = 8192;
  EXPECT_TRUE(Plan().ok());
  config_.max_model_len = 8193;
  EXPECT_EQ(Refusal(), "--max-model-len 8193 exceeds the model's 8192 positions");
}

TEST_F(EngineSetupTest, OtherFormatsOfWeightsAreRefusedBeforeTheConfigIsRead) {
  dir_.Write("pytorch_model.bin", "x");
  dir_.Write("config.json", "no JSON");
  EXPECT_NE(Refusal().find("Convert them and serve the new directory: python3 -c"),
            std::string::npos);
}

TEST_F(EngineSetupTest, GpuDefaults) {
  const absl::StatusOr<EngineSetup> setup = Plan();
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(setup->config.block_size, 64);
  EXPECT_EQ(setup->config.max_num_batched_tokens, 2048);
  EXPECT_EQ(setup->config.worker_process, "on");
  EXPECT_EQ(setup->config.load_format, "safetensors");
  EXPECT_EQ(setup->model_options.weight_dtype, DType::kBF16);
  EXPECT_EQ(setup->model_options.activation_dtype, DType::kBF16);
  EXPECT_EQ(setup->kv_layout.dtype, DType::kBF16);
  EXPECT_FALSE(setup->model_options.weights_in_place);
  EXPECT_EQ(setup->model_options.width_multiple, kCudaLimits.width_multiple);
  EXPECT_EQ(setup->graph_sizes.size(), 23u);
  EXPECT_EQ(SpecOf(*setup, 0).worker.graph_sizes, setup->graph_sizes);
  EXPECT_EQ(setup->config.max_model_len, 131072);
}

TEST_F(EngineSetupTest, TheKvCacheTakesTheRestOfTheBudget) {
  const absl::StatusOr<EngineSetup> setup = Plan();
  ASSERT_TRUE(setup.ok()) << setup.status();
  // K and V, 32 layers, 8 heads, 64 tokens, 128 numbers of two bytes.
  const int64_t block = 2 * 32 * 8 * 64 * 128 * 2;
  EXPECT_EQ(setup->kv_layout.block_bytes(), block);
  // 8,030,261,248 parameters of two bytes; norms and alignment add a few MiB.
  EXPECT_GE(Part(*setup, "weights"), int64_t{8'030'261'248} * 2);
  EXPECT_LE(Part(*setup, "weights"), int64_t{8'030'261'248} * 2 + 4 * kMiB);
  EXPECT_EQ(Part(*setup, "backend"), 512 * kMiB);
  // 23 captures of about 520 calls, 3 KiB each.
  EXPECT_NEAR(static_cast<double>(Part(*setup, "driver")), (32 + 35) * kMiB, 2.0 * kMiB);
  const auto budget = static_cast<int64_t>(0.9 * static_cast<double>(141 * kGiB)) - kGiB;
  int64_t fixed = 0;
  for (const char* part :
       {"weights", "activations", "logits", "row_tables", "step_arrays", "backend", "driver"}) {
    fixed += Part(*setup, part);
  }
  EXPECT_EQ(setup->memory.budget_bytes, budget);
  EXPECT_EQ(setup->memory.num_blocks, (budget - fixed) / block);
  EXPECT_EQ(Part(*setup, "kv_cache"), setup->memory.num_blocks * block);
  EXPECT_EQ(setup->scheduler.num_blocks, setup->memory.num_blocks);
}

// Sixteen ranks hold each of eight key/value heads twice.
TEST_F(EngineSetupTest, EveryRankFillsItsBudget) {
  for (const int32_t ranks : {2, 4, 16}) {
    config_.tensor_parallel_size = ranks;
    const absl::StatusOr<EngineSetup> setup = Plan();
    ASSERT_TRUE(setup.ok()) << setup.status();
    const int64_t block = 2 * 32 * std::max(8 / ranks, 1) * 64 * 128 * 2;
    EXPECT_EQ(setup->kv_layout.block_bytes(), block);
    EXPECT_EQ(Part(*setup, "kv_cache"), setup->memory.num_blocks * block);
    EXPECT_LE(setup->memory.total_bytes(), setup->memory.budget_bytes);
    EXPECT_GT(setup->memory.total_bytes(), setup->memory.budget_bytes - block);
    EXPECT_EQ(setup->scheduler.tiering.block_bytes, block * ranks);
  }
}

TEST_F(EngineSetupTest, UsedMemoryAndASmallerShareShrinkTheKvCache) {
  const int32_t all = Plan()->memory.num_blocks;
  const int32_t shared = Plan(141 * kGiB, 11 * kGiB)->memory.num_blocks;
  EXPECT_EQ(all - shared, 10 * kGiB / (8 * kMiB));
  config_.gpu_memory_utilization = 0.5;
  EXPECT_NEAR(all - Plan()->memory.num_blocks, 0.4 * 141 * 128, 1);  // 128 blocks a GiB
}

TEST_F(EngineSetupTest, TheContextFollowsFromASmallPool) {
  const absl::StatusOr<EngineSetup> setup = Plan(24 * kGiB);
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_LT(setup->config.max_model_len, 131072);
  EXPECT_EQ(setup->config.max_model_len, setup->memory.kv_tokens());
  EXPECT_LE(setup->memory.total_bytes(), setup->memory.budget_bytes);
  // A draft does not know the context yet and plans with the longest one.
  EXPECT_EQ(SpecOf(*DraftEngine(config_), 0).worker.max_model_len, 131072);
}

TEST_F(EngineSetupTest, AGpuThatIsTooSmallIsRefusedWithTheTable) {
  const absl::Status status = Plan(16 * kGiB).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("--gpu-memory-utilization"), HasSubstr("weights"), HasSubstr("15317.0 MiB"),
            HasSubstr("in use before"), HasSubstr("1024.0 MiB"), HasSubstr("a GPU of paper")));
  // A pool larger than the remaining memory is refused too.
  config_.kv_cache_memory_bytes = 130 * kGiB;
  EXPECT_EQ(Plan().status().code(), absl::StatusCode::kResourceExhausted);
  config_.kv_cache_memory_bytes = 10 * kGiB;
  EXPECT_EQ(Plan()->memory.num_blocks, 1280);
}

TEST_F(EngineSetupTest, RefusesUnsupportedSettingsOnAGpu) {
  config_.tensor_parallel_size = 3;
  EXPECT_THAT(Refusal(), HasSubstr("--tensor-parallel-size 3: must divide"));
  config_.tensor_parallel_size = 1;
  config_.dtype = "float32";
  EXPECT_THAT(Refusal(), HasSubstr("--dtype float32 runs on the cpu only"));
  config_.dtype = "float16";
  EXPECT_EQ(Plan()->kv_layout.dtype, DType::kF16);
  config_.kv_cache_dtype = "bfloat16";
  EXPECT_THAT(Refusal(), HasSubstr("--kv-cache-dtype bfloat16"));
}

// The reasons themselves: tests/engine/model/capability_check_test.cc.
TEST_F(EngineSetupTest, ModelsBeyondTheKernelsOfTheDeviceAreRefusedOnThatDeviceOnly) {
  WriteModel(R"("head_dim": 72, "hidden_size": 4100)");
  config_.max_num_seqs = 5000;
  EXPECT_EQ(Plan().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("head_dim 72: the CUDA attention kernels take multiples"),
                               HasSubstr("\nhidden_size 4100: "),
                               HasSubstr("\n--max-num-seqs 5000: "), HasSubstr("--device cpu")));
  config_.device = "cpu";
  config_.max_model_len = 512;
  EXPECT_TRUE(PlanEngine(config_, {}, host_).ok());
}

TEST_F(EngineSetupTest, AnAutomaticContextIsCappedByTheKernels) {
  WriteModel(R"("max_position_embeddings": 1048576)");
  config_.num_blocks_override = 10000;
  ASSERT_TRUE(Plan().ok()) << Plan().status();
  EXPECT_EQ(Plan()->config.max_model_len, 524288);
  EXPECT_EQ(SpecOf(*DraftEngine(config_), 0).worker.max_model_len, 524288);
  config_.max_model_len = 524289;
  EXPECT_THAT(Refusal(), HasSubstr("--max-model-len 524289: "));
}

TEST_F(EngineSetupTest, RefusesBlocksBeyondAnyMemory) {
  WriteModel(R"("num_hidden_layers": 4096, "num_attention_heads": 16384,
      "num_key_value_heads": 16384, "head_dim": 1024)");
  config_.device = "cpu";
  config_.num_blocks_override = 1 << 27;
  EXPECT_THAT(Refusal(), HasSubstr("--num-blocks-override 134217727: blocks of "));
}

TEST_F(EngineSetupTest, ChosenGraphSizesReachTheWorker) {
  config_.cudagraph_capture_sizes = "16,1,300";
  EXPECT_THAT(Plan()->graph_sizes, ElementsAre(1, 16));
  config_.device = "cpu";
  config_.max_model_len = 512;
  EXPECT_THAT(PlanEngine(config_, {}, host_)->graph_sizes, ElementsAre());
}

TEST_F(EngineSetupTest, QuantizationHalvesTheMatrices) {
  const absl::StatusOr<EngineSetup> wide = Plan();
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->config.quantization, "none");
  EXPECT_EQ(wide->model_options.width_multiple, 8);
  EXPECT_EQ(SpecOf(*wide, 0).quantization, "none");
  config_.quantization = "fp8";
  const absl::StatusOr<EngineSetup> narrow = Plan();
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->config.quantization, "fp8");
  EXPECT_EQ(narrow->config.dtype, "bfloat16");
  EXPECT_EQ(narrow->model_options.width_multiple, 16);
  EXPECT_EQ(SpecOf(*narrow, 0).quantization, "fp8");
  // A byte less for each weight of a layer, beside four for each row: under a thousandth.
  constexpr double kLayers = 32.0 * 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336);
  EXPECT_NEAR(Part(*wide, "weights") - Part(*narrow, "weights"), kLayers, 2e-3 * kLayers);
  // Of a model that is stored so, nothing else can be asked.
  WriteModel(R"("quantization_config": {"quant_method": "fp8"})");
  EXPECT_EQ(Plan()->config.quantization, "fp8");
  config_.quantization = "auto";
  EXPECT_EQ(Plan()->config.quantization, "fp8");
  config_.quantization = "none";
  EXPECT_EQ(Refusal().find("--quantization none: the model's matrices are stored"), 0u);
}

TEST_F(EngineSetupTest, CpuDefaultsAreUnchanged) {
  config_.device = "auto";
  config_.max_model_len = 512;
  const absl::StatusOr<EngineSetup> setup = PlanEngine(config_, {}, host_);
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(setup->device, "cpu");
  EXPECT_EQ(setup->config.worker_process, "off");
  EXPECT_EQ(setup->config.kv_cache_memory_bytes, 256 * kMiB);
  EXPECT_EQ(setup->kv_layout.dtype, DType::kF32);
  EXPECT_EQ(setup->model_options.activation_dtype, DType::kF32);
  EXPECT_TRUE(setup->model_options.weights_in_place);
  EXPECT_EQ(setup->model_options.width_multiple, 1);
  EXPECT_EQ(setup->memory.budget_bytes, 0);
  config_.worker_process = "on";
  EXPECT_EQ(PlanEngine(config_, {}, host_)->config.worker_process, "on");
  config_.tensor_parallel_size = 2;
  EXPECT_EQ(PlanEngine(config_, {}, host_)->config.worker_process, "on");
}

TEST_F(EngineSetupTest, EightBitKvTakesHalfTheBytes) {
  const absl::StatusOr<EngineSetup> wide = Plan();
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_FALSE(wide->model_options.eight_bit_kv);
  config_.kv_cache_dtype = "fp8";
  const absl::StatusOr<EngineSetup> narrow = Plan();
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->config.kv_cache_dtype, "fp8");
  EXPECT_EQ(narrow->kv_layout.dtype, DType::kE4M3);
  EXPECT_TRUE(narrow->model_options.eight_bit_kv);
  EXPECT_EQ(narrow->kv_layout.block_bytes() * 2, wide->kv_layout.block_bytes());
  EXPECT_GE(narrow->memory.num_blocks, 2 * wide->memory.num_blocks - 1);
  config_.device = "cpu";
  config_.max_model_len = 512;
  EXPECT_EQ(PlanEngine(config_, {}, host_)->kv_layout.block_bytes(),
            narrow->kv_layout.block_bytes() / 4);
}

TEST_F(EngineSetupTest, HostMemoryMatchesTheDeviceUpToAQuarter) {
  const absl::StatusOr<EngineSetup> roomy = Plan();
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  EXPECT_EQ(roomy->memory.num_pages, roomy->memory.num_blocks - 1);
  EXPECT_EQ(roomy->memory.host_bytes, int64_t{roomy->memory.num_pages} * 8 * kMiB);
  EXPECT_EQ(roomy->memory.host_limit_bytes, 512 * kGiB);
  EXPECT_EQ(roomy->config.kv_offloading_size, roomy->memory.num_pages / 128.0);
  EXPECT_EQ(roomy->scheduler.num_pages, roomy->memory.num_pages);
  host_ = 31 * kGiB;
  EXPECT_EQ(Plan()->memory.host_bytes, 31 * kGiB / 4);
  EXPECT_THAT(Plan()->memory.Table(), HasSubstr("host memory for KV           7936.0 MiB"));
}

TEST_F(EngineSetupTest, HostMemoryIsSharedByAllRanks) {
  config_.device = "cpu";
  config_.max_model_len = 512;
  config_.kv_cache_dtype = "bfloat16";
  config_.kv_offloading_size = 2;
  EXPECT_EQ(PlanEngine(config_, {}, host_)->memory.num_pages, 2 * 512);  // blocks of 2 MiB
  config_.tensor_parallel_size = 2;
  const absl::StatusOr<EngineSetup> two = PlanEngine(config_, {}, host_);
  EXPECT_EQ(two->memory.num_pages, 2 * 512);
  EXPECT_EQ(two->memory.host_bytes, 2 * kGiB);
  EXPECT_EQ(two->scheduler.tiering.block_bytes, 2 * kMiB);
  config_.kv_offloading_size = 0;
  EXPECT_EQ(PlanEngine(config_, {}, host_)->memory.num_pages, 0);
}

TEST_F(EngineSetupTest, TooMuchHostMemoryIsRefusedWithNumbers) {
  config_.kv_offloading_size = 513;
  EXPECT_EQ(Plan().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("513.00 GiB of host memory, beside 0.00 GiB"),
                               HasSubstr("the 512.00 GiB"), HasSubstr("at most 524288MiB")));
  config_.kv_offloading_size = 512;
  EXPECT_EQ(Plan()->memory.host_bytes, 512 * kGiB);
  config_.kv_offloading_size = 0.001;
  EXPECT_THAT(Refusal(), HasSubstr("do not hold a KV block of 8388608 bytes"));
  // On the cpu the weights want their share: 15 GiB, and a pool of a quarter.
  config_.device = "cpu";
  config_.max_model_len = 512;
  config_.kv_offloading_size = 10;
  EXPECT_THAT(std::string(PlanEngine(config_, {}, 20 * kGiB).status().message()),
              AllOf(HasSubstr("10.00 GiB"), HasSubstr("20.00 GiB")));
  const absl::StatusOr<EngineSetup> fits = PlanEngine(config_, {}, 40 * kGiB);
  ASSERT_TRUE(fits.ok()) << fits.status();
  // The default shrinks to the memory there is, down to none.
  config_.kv_offloading_size = -1;
  EXPECT_EQ(PlanEngine(config_, {}, fits->memory.total_bytes())->memory.num_pages, 0);
}

TEST_F(EngineSetupTest, APlanBeyondTheHostsMemoryIsRefusedOnTheCpu) {
  config_.device = "cpu";
  config_.max_model_len = 512;
  config_.kv_cache_memory_bytes = 8 * kGiB;
  EXPECT_TRUE(PlanEngine(config_, {}, 24 * kGiB).ok());  // 15 GiB of weights
  const absl::Status refused = PlanEngine(config_, {}, 23 * kGiB).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("more than the 23.00 GiB"), HasSubstr("--kv-cache-memory-bytes")));
}

TEST_F(EngineSetupTest, SettingsOfSessionsReachTheScheduler) {
  config_.enable_prefix_caching = false;
  config_.max_sessions = 10;
  config_.session_ttl_seconds = 60;
  config_.session_max_ttl_seconds = 600;
  config_.session_idle_offload_after_seconds = 5;
  config_.session_pin_share = 0.5;
  config_.kv_low_watermark = 0.05;
  const SchedulerConfig scheduler = Plan()->scheduler;
  EXPECT_FALSE(scheduler.prefix_cache);
  EXPECT_EQ(scheduler.sessions.max_sessions, 10);
  EXPECT_EQ(scheduler.sessions.max_sessions_per_tenant, 16384);
  EXPECT_EQ(scheduler.sessions.max_session_tokens, int64_t{64} << 20);
  EXPECT_EQ(scheduler.sessions.max_model_len, 131072);
  EXPECT_EQ(scheduler.sessions.default_ttl_seconds, 60);
  EXPECT_EQ(scheduler.sessions.max_ttl_seconds, 600);
  EXPECT_EQ(scheduler.sessions.default_idle_offload_seconds, 5);
  EXPECT_EQ(scheduler.sessions.max_pinned_share, 0.5);
  EXPECT_EQ(scheduler.tiering.block_bytes, 8 * kMiB);
  EXPECT_EQ(scheduler.tiering.low_watermark, 0.05);
  EXPECT_EQ(scheduler.tiering.high_watermark, 0.2);
}

TEST_F(EngineSetupTest, DummyWeightsNeedNoFiles) {
  config_.load_format = "dummy";
  EXPECT_TRUE(SpecOf(*Plan(), 0).model_options.dummy_weights);
}

}  // namespace
}  // namespace quire
