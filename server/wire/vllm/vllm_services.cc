// Facts from the settings; aborts through the table of streams.
#include "server/wire/vllm/vllm_services.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "field/vllm_control.pb.h"
#include "server/generate/abort_streams.h"
#include "server/generate/generate_call.h"
#include "server/generate/stream_table.h"
#include "server/wire/foreign_call.h"
#include "server/wire/refused_methods.h"
#include "server/wire/vllm/vllm_format.h"
#include "version/build_facts.h"

namespace quire {
namespace {

// The release of the protocol whose messages this server knows.
constexpr char kApiVersion[] = "0.5";

constexpr char kWeights[] = "weights are not replaced while the server runs; start another server";
constexpr char kPause[] = "generation is not paused; quire.v1.Control/Drain refuses new requests";
constexpr char kSleep[] = "the server does not give its memory back while it runs; end it instead";
constexpr char kLora[] = "LoRA adapters are not served";

constexpr RefusedMethod kRefused[] = {
    {"/vllm.Control/Shutdown",
     "quire.v1.Control/Drain with exit_when_idle, or SIGTERM, ends the server"},
    {"/vllm.Control/LoadLora", kLora},
    {"/vllm.Control/UnloadLora", kLora},
    {"/vllm.Control/PauseGeneration", kPause},
    {"/vllm.Control/ResumeGeneration", kPause},
    {"/vllm.Control/Sleep", kSleep},
    {"/vllm.Control/WakeUp", kSleep},
    {"/vllm.Control/InitWeightTransferEngine", kWeights},
    {"/vllm.Control/StartWeightUpdate", kWeights},
    {"/vllm.Control/StartDraftWeightUpdate", kWeights},
    {"/vllm.Control/UpdateWeights", kWeights},
    {"/vllm.Control/FinishWeightUpdate", kWeights},
    {"/vllm.Control/UpdateWeightVersion", kWeights},
    {"/vllm.Control/GetWeightVersion", kWeights},
};

void FillServerInfo(const WireResources& resources, vllm::ServerInfo* info) {
  const EngineSetup& setup = resources.generate.model.setup;
  const auto ranks = static_cast<uint32_t>(setup.config.tensor_parallel_size);
  info->set_engine_version(std::string("quire ") + ThisBuild().version);
  info->set_api_version(kApiVersion);
  info->set_instance_id(resources.instance_id);
  vllm::ParallelismInfo* parallelism = info->mutable_parallelism();
  parallelism->set_tensor_parallel_size(ranks);
  parallelism->set_pipeline_parallel_size(1);
  parallelism->set_data_parallel_size(1);
  parallelism->set_decode_context_parallel_size(1);
  parallelism->set_world_size(ranks);
  parallelism->set_data_parallel_size_local(1);
  info->set_max_model_len(static_cast<uint32_t>(setup.limits.max_model_len));
  info->set_kv_block_size(static_cast<uint32_t>(setup.memory.block_size));
  info->set_total_kv_blocks(static_cast<uint64_t>(std::max(setup.memory.num_blocks - 1, 0)));
  info->set_max_running_requests(static_cast<uint64_t>(setup.config.max_num_seqs));
  info->set_max_batched_tokens(static_cast<uint64_t>(setup.config.max_num_batched_tokens));
  info->mutable_rl_capabilities();
  info->set_effective_attention_block_size(static_cast<uint64_t>(setup.memory.block_size));
}

void FillModelInfo(const ServingModel& model, vllm::ModelInfo* info) {
  info->set_model_id(model.name);
  info->set_served_model_name(model.name);
  for (const std::string& name : model.other_names) info->add_served_model_aliases(name);
  info->set_supports_text_input(true);
  info->set_supports_token_ids_input(true);
}

absl::Status Abort(const WireResources& resources, const Caller& caller,
                   const vllm::AbortRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, IdsToAbort(request.request_ids()));
  AbortStreams({.caller = caller,
                .method = "vllm.Control/Abort",
                .named = static_cast<size_t>(request.request_ids_size())},
               resources.generate.streams.Find(ids, MayEnd(caller)));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<RawService> MakeVllmInference(const WireResources& resources) {
  auto service = std::make_unique<RawService>(&resources.generate.calls.door);
  service->Add(
      "/vllm.Inference/GenerateStream",
      StreamingGenerate(&resources.generate, {"vllm.Inference/GenerateStream", VllmStreamFormat}));
  service->Add("/vllm.Inference/Generate",
               UnaryGenerate(&resources.generate, {"vllm.Inference/Generate", VllmUnaryFormat}));
  return service;
}

std::unique_ptr<RawService> MakeVllmControl(const WireResources& resources) {
  auto service = std::make_unique<RawService>(&resources.generate.calls.door);
  const CallResources* calls = &resources.generate.calls;
  AddForeignCall<vllm::GetServerInfoRequest, vllm::ServerInfo>(
      service.get(), calls, "/vllm.Control/GetServerInfo",
      [resources](const vllm::GetServerInfoRequest&, vllm::ServerInfo* info) {
        FillServerInfo(resources, info);
        return absl::OkStatus();
      });
  AddForeignCall<vllm::GetModelInfoRequest, vllm::ModelInfo>(
      service.get(), calls, "/vllm.Control/GetModelInfo",
      [resources](const vllm::GetModelInfoRequest&, vllm::ModelInfo* info) {
        FillModelInfo(resources.generate.model, info);
        return absl::OkStatus();
      });
  AddForeignCall<vllm::AbortRequest, vllm::AbortResponse>(
      service.get(), calls, "/vllm.Control/Abort",
      [resources](const Caller& caller, const vllm::AbortRequest& request, vllm::AbortResponse*) {
        return Abort(resources, caller, request);
      });
  // These are answered as they are: there are no adapters, no sources beside this port, and
  // generation is never paused.
  AddForeignCall<vllm::ListLorasRequest, vllm::ListLorasResponse>(
      service.get(), calls, "/vllm.Control/ListLoras",
      [](const vllm::ListLorasRequest&, vllm::ListLorasResponse*) { return absl::OkStatus(); });
  AddForeignCall<vllm::GetKvEventSourcesRequest, vllm::GetKvEventSourcesResponse>(
      service.get(), calls, "/vllm.Control/GetKvEventSources",
      [](const vllm::GetKvEventSourcesRequest&, vllm::GetKvEventSourcesResponse*) {
        return absl::OkStatus();
      });
  AddForeignCall<vllm::IsPausedRequest, vllm::IsPausedResponse>(
      service.get(), calls, "/vllm.Control/IsPaused",
      [](const vllm::IsPausedRequest&, vllm::IsPausedResponse*) { return absl::OkStatus(); });
  AddForeignCall<vllm::IsSleepingRequest, vllm::IsSleepingResponse>(
      service.get(), calls, "/vllm.Control/IsSleeping",
      [](const vllm::IsSleepingRequest&, vllm::IsSleepingResponse*) { return absl::OkStatus(); });
  AddRefusedMethods(service.get(), calls, kRefused);
  return service;
}

}  // namespace quire
