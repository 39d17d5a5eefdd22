// Plans of PlanEngine in words: of the device at hand, and of devices that are described by
// numbers.
#include "server/start/device_sections.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/checkpoint/config_quantization.h"

namespace quire {
namespace {

constexpr int32_t kMostRanks = 8;  // of one host
constexpr int64_t kGiB = int64_t{1} << 30;

struct GpuSize {
  const char* name;
  int64_t bytes;
};
// Named as they are sold; the bytes are what their drivers report, rounded down: of an H100 or A100
// and of an H200.
constexpr std::array kGpuSizes = {GpuSize{"80 GB", 79 * kGiB}, GpuSize{"141 GB", 139 * kGiB}};
// An allowance for a process's context and the workspaces of its kernels, which only the device
// itself can tell.
constexpr int64_t kWorkspaceBytes = kGiB;
// Host memory for KV is of the machine with the GPUs, which this may not be.
constexpr int64_t kAnyHostBytes = int64_t{1} << 50;

std::string ContextText(const EngineSetup& setup) {
  const int32_t served = setup.config.max_model_len, own = setup.model.max_position;
  std::string text = absl::StrCat(CountText(served), " tokens");
  if (served < own) {
    absl::StrAppend(&text, " of the model's ", CountText(own),
                    served == setup.memory.kv_tokens() ? ": all that the KV cache holds" : "");
  }
  const RopeConfig& rope = setup.model.rope;
  if (rope.scaling == RopeScaling::kLongRope) {
    const bool is_long = served > rope.original_max_position;
    absl::StrAppend(&text, ", by the ", is_long ? "long" : "short", " factors of longrope");
  }
  return text;
}

std::string MemoryText(const MemoryPlan& memory) {
  std::vector<std::string> parts;
  for (const MemoryPlan::Part& part : memory.parts) {
    parts.push_back(absl::StrCat(part.name, " ", BytesText(part.bytes)));
  }
  std::string text =
      absl::StrCat(absl::StrJoin(parts, "\n"), "\nall ", BytesText(memory.total_bytes()),
                   memory.ranks > 1 ? " on each rank" : "");
  if (memory.budget_bytes > 0) {
    absl::StrAppend(&text, " of ", BytesText(memory.budget_bytes), " that may be used");
  }
  return text;
}

// Tokens of KV on `ranks` GPUs of this size, or why there is no plan.
std::string FitText(EngineConfig config, int32_t ranks, const GpuSize& gpu) {
  config.tensor_parallel_size = ranks;
  const DeviceFacts facts{.kind = "cuda",
                          .name = gpu.name,
                          .total_bytes = gpu.bytes,
                          .free_bytes = gpu.bytes,
                          .backend_bytes = kWorkspaceBytes};
  const absl::StatusOr<EngineSetup> setup = PlanEngine(config, facts, kAnyHostBytes);
  if (setup.ok())
    return absl::StrCat("about ", CountText(setup->memory.kv_tokens()), " tokens of KV");
  if (absl::IsResourceExhausted(setup.status())) return "too small";
  return std::string(setup.status().message());
}

}  // namespace

CheckSection DescribeDevice(const CheckedModel& model) {
  CheckSection section{.title = "Device"};
  if (!model.setup.has_value()) {
    section.Add("plan", model.config ? "none, see the end" : "none without config.json");
    return section;
  }
  const EngineSetup& setup = *model.setup;
  const std::string& why = setup.device_reason;
  section.Add("device", absl::StrCat(setup.device, why.empty() ? "" : ": " + why));
  section.Add("ranks", absl::StrCat(setup.memory.ranks));
  const bool narrow = !setup.model.quantization.empty();
  section.Add("weights as", absl::StrCat(setup.config.dtype, narrow ? ", matrices as " : "",
                                         narrow ? EncodingText(setup.model.quantization) : ""));
  section.Add("KV as", setup.config.kv_cache_dtype);
  section.Add("context", ContextText(setup));
  section.Add("memory", MemoryText(setup.memory));
  section.Add("KV of a token", BytesText(setup.memory.block_bytes() / setup.memory.block_size));
  section.Add("KV cache",
              absl::StrCat(CountText(setup.memory.kv_tokens()), " tokens, and ",
                           CountText(setup.memory.host_kv_tokens()), " in host memory"));
  return section;
}

CheckSection DescribeGpus(const CheckedModel& model) {
  CheckSection section{.title = "On GPUs"};
  if (!model.config.has_value()) {
    section.Add("CUDA kernels", "not known without config.json");
    return section;
  }
  EngineConfig config = model.planned;
  config.device = "cuda";
  const absl::Status kernels = DraftEngine(config).status();
  section.Add("CUDA kernels", kernels.ok() ? "can compute this" : std::string(kernels.message()));
  if (!kernels.ok()) return section;
  for (const int32_t ranks : model.config->TensorParallelSizes()) {
    if (ranks > kMostRanks) break;
    for (const GpuSize& gpu : kGpuSizes) {
      section.Add(absl::StrCat(ranks, " of ", gpu.name), FitText(config, ranks, gpu));
    }
  }
  return section;
}

}  // namespace quire
