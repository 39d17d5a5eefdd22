// Facts from the settings and the engine's figures; aborts through the table of streams.
#include "server/wire/openengine/openengine_services.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/base/status_macros.h"
#include "field/openengine.pb.h"
#include "server/call/status_codec.h"
#include "server/generate/abort_streams.h"
#include "server/generate/generate_call.h"
#include "server/generate/stream_table.h"
#include "server/wire/engine_trouble.h"
#include "server/wire/field_names.h"
#include "server/wire/foreign_call.h"
#include "server/wire/openengine/kv_events_call.h"
#include "server/wire/openengine/openengine_format.h"
#include "version/build_facts.h"

namespace quire {
namespace {

namespace oe = openengine::v1;

// The protocol's revision that this server implements, and the commit of its source.
constexpr uint32_t kSchemaRevision = 1;
constexpr char kSchemaRelease[] = "2f92780dda1ecf3013868c6b348d13dec5d16322";

// The protocol's code for an engine without adapters.
absl::Status NoAdapters() {
  return Refusal(absl::StatusCode::kFailedPrecondition, "NOT_SERVED",
                 "LoRA adapters are not served");
}

uint64_t TotalBlocks(const EngineSetup& setup) {
  return static_cast<uint64_t>(std::max(setup.memory.num_blocks - 1, 0));  // no null block
}

void FillServerInfo(const WireResources& resources, oe::ServerInfo* info) {
  const ServingModel& model = resources.generate.model;
  const EngineSetup& setup = model.setup;
  info->set_engine_name("quire");
  info->set_engine_version(ThisBuild().version);
  info->set_engine_role(oe::ENGINE_ROLE_AGGREGATED);
  info->set_instance_id(resources.instance_id);
  info->add_supported_models(model.name);
  for (const std::string& name : model.other_names) info->add_supported_models(name);
  oe::ParallelismInfo* parallelism = info->mutable_parallelism();
  parallelism->set_tensor_parallel_size(static_cast<uint32_t>(setup.config.tensor_parallel_size));
  parallelism->set_pipeline_parallel_size(1);
  parallelism->set_data_parallel_size(1);
  parallelism->set_data_parallel_rank(0);
  parallelism->set_data_parallel_start_rank(0);
  parallelism->set_decode_context_parallel_size(1);
  info->mutable_kv_connector()->set_enabled(false);
  info->set_schema_revision(kSchemaRevision);
  info->set_minimum_client_revision(kSchemaRevision);
  info->set_schema_release(kSchemaRelease);
  oe::DeploymentCapacity* capacity = info->mutable_capacity();
  capacity->set_kv_block_size(static_cast<uint32_t>(setup.memory.block_size));
  capacity->set_total_kv_blocks(TotalBlocks(setup));
  capacity->set_max_running_requests(static_cast<uint64_t>(setup.config.max_num_seqs));
  capacity->set_max_batched_tokens(static_cast<uint64_t>(setup.config.max_num_batched_tokens));
  capacity->set_max_loras(0);
}

absl::Status FillModelInfo(const ServingModel& model, const oe::GetModelInfoRequest& request,
                           oe::ModelInfo* info) {
  if (request.model().empty()) return InvalidField("model", "missing");
  RETURN_IF_ERROR(CheckModelName(request.model(), model));
  const auto context = static_cast<uint32_t>(model.setup.limits.max_model_len);
  info->set_model_id(model.name);
  info->set_served_model_name(model.name);
  for (const std::string& name : model.other_names) info->add_served_model_aliases(name);
  info->set_max_context_length(context);
  info->set_max_output_tokens(context - 1);
  info->set_supports_text_input(true);
  info->set_supports_token_ids_input(true);
  info->set_supports_lora(false);
  info->set_supports_multimodal(false);
  oe::GenerationCapabilities* generation = info->mutable_generation();
  generation->mutable_prompt_logprobs()->set_supported(false);
  generation->mutable_output_logprobs()->set_supported(true);
  generation->mutable_output_logprobs()->set_max_top_n(0);
  oe::GuidedDecodingCapabilities* guided = generation->mutable_guided_decoding();
  guided->set_supported(model.tokenizer != nullptr);
  for (const oe::GuidedDecodingMode mode :
       {oe::GUIDED_DECODING_MODE_JSON_SCHEMA, oe::GUIDED_DECODING_MODE_REGEX,
        oe::GUIDED_DECODING_MODE_EBNF_GRAMMAR, oe::GUIDED_DECODING_MODE_CHOICE,
        oe::GUIDED_DECODING_MODE_JSON_OBJECT}) {
    if (guided->supported()) guided->add_modes(mode);
  }
  generation->set_max_num_sequences(1);
  generation->set_supports_priority(true);
  generation->set_supports_stop_in_output(true);
  generation->set_supports_cache_salt(false);
  generation->set_supports_prefix_cache_bypass(true);
  return absl::OkStatus();
}

void FillLoad(const WireResources& resources, const oe::GetLoadRequest& request,
              oe::LoadInfo* info) {
  const EngineStats stats = resources.generate.engine.Stats();
  const SchedulerLoad& load = stats.load;
  const auto running = static_cast<uint32_t>(load.running);
  const auto queued = static_cast<uint32_t>(load.waiting);
  const auto used = static_cast<uint64_t>(load.total_blocks - load.free_blocks);
  const auto total = static_cast<uint64_t>(load.total_blocks);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  info->set_instance_id(resources.instance_id);
  info->set_timestamp_unix_nanos(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  info->set_running_requests(running);
  info->set_queued_requests(queued);
  info->set_used_kv_blocks(used);
  info->set_total_kv_blocks(total);
  info->set_running_tokens(static_cast<uint64_t>(load.tokens_in_flight));
  info->set_waiting_tokens(static_cast<uint64_t>(load.waiting_tokens));
  if (!request.include_per_rank()) return;
  oe::RankLoadInfo* rank = info->add_ranks();  // one replica, however many ranks share its model
  rank->set_data_parallel_rank(0);
  rank->set_running_requests(running);
  rank->set_queued_requests(queued);
  rank->set_used_kv_blocks(used);
  rank->set_total_kv_blocks(total);
}

absl::Status FillHealth(const WireResources& resources, const oe::HealthRequest& request,
                        oe::HealthResponse* response) {
  if (request.include_inference_probe()) {
    return NotServed("include_inference_probe", "health is not probed by a request");
  }
  if (!request.model().empty()) {
    RETURN_IF_ERROR(CheckModelName(request.model(), resources.generate.model));
  }
  if (request.role() != oe::ENGINE_ROLE_UNSPECIFIED &&
      request.role() != oe::ENGINE_ROLE_AGGREGATED) {
    return InvalidField("role", "this engine is ENGINE_ROLE_AGGREGATED");
  }
  const auto check = [response](const char* name, oe::HealthState state, const std::string& why) {
    oe::HealthCheck* added = response->add_checks();
    added->set_name(name);
    added->set_state(state);
    added->set_message(why);
    response->set_state(std::max(response->state(), state));  // the states worsen upwards
  };
  const bool draining = resources.generate.drain.draining();
  check("grpc", draining ? oe::HEALTH_STATE_NOT_READY : oe::HEALTH_STATE_READY,
        draining ? "the server drains: it accepts no new request" : "");
  const std::string trouble = EngineTrouble(resources);
  oe::HealthState scheduler = trouble.empty() ? oe::HEALTH_STATE_READY : oe::HEALTH_STATE_NOT_READY;
  // Requests are accepted meanwhile, and wait.
  if (resources.generate.engine.Stats().recovering) scheduler = oe::HEALTH_STATE_DEGRADED;
  check("scheduler", scheduler, trouble);
  return absl::OkStatus();
}

absl::Status Abort(const WireResources& resources, const Caller& caller,
                   const oe::AbortRequest& request, oe::AbortResponse* response) {
  StreamTable& table = resources.generate.streams;
  std::vector<std::shared_ptr<GenerationStream>> found;
  switch (request.target_case()) {
    case oe::AbortRequest::kRequestId:
      found = table.Find({request.request_id()}, MayEnd(caller));
      break;
    case oe::AbortRequest::kAllRequests: found = table.All(MayEnd(caller)); break;
    case oe::AbortRequest::kKvSession:
      return NotServed("kv_session", "KV is not passed between engines");
    case oe::AbortRequest::TARGET_NOT_SET:
      return InvalidField("target", "missing; set request_id or all_requests");
  }
  const bool all = request.has_all_requests();
  AbortStreams({.caller = caller,
                .method = "openengine.v1.Control/Abort",
                .all = all,
                .named = all ? size_t{0} : size_t{1}},
               found);
  response->set_status(found.empty() ? oe::ABORT_STATUS_ALREADY_FINISHED
                                     : oe::ABORT_STATUS_ABORTED);
  response->set_message(std::to_string(found.size()) + " requests were live");
  return absl::OkStatus();
}

void AddLora(RawService* service, const CallResources* calls) {
  AddForeignCall<oe::LoadLoraRequest, oe::LoadLoraResponse>(
      service, calls, "/openengine.v1.Control/LoadLora",
      [](const oe::LoadLoraRequest&, oe::LoadLoraResponse*) { return NoAdapters(); });
  AddForeignCall<oe::UnloadLoraRequest, oe::UnloadLoraResponse>(
      service, calls, "/openengine.v1.Control/UnloadLora",
      [](const oe::UnloadLoraRequest&, oe::UnloadLoraResponse*) { return NoAdapters(); });
  AddForeignCall<oe::ListLorasRequest, oe::ListLorasResponse>(
      service, calls, "/openengine.v1.Control/ListLoras",
      [](const oe::ListLorasRequest&, oe::ListLorasResponse*) { return absl::OkStatus(); });
}

}  // namespace

std::unique_ptr<RawService> MakeOpenEngineInference(const WireResources& resources) {
  auto service = std::make_unique<RawService>(&resources.generate.calls.door);
  service->Add("/openengine.v1.Inference/Generate",
               StreamingGenerate(&resources.generate,
                                 {"openengine.v1.Inference/Generate", OpenEngineFormat}));
  return service;
}

std::unique_ptr<RawService> MakeOpenEngineControl(const WireResources& resources) {
  auto service = std::make_unique<RawService>(&resources.generate.calls.door);
  const CallResources* calls = &resources.generate.calls;
  AddForeignCall<oe::GetServerInfoRequest, oe::ServerInfo>(
      service.get(), calls, "/openengine.v1.Control/GetServerInfo",
      [resources](const oe::GetServerInfoRequest&, oe::ServerInfo* info) {
        FillServerInfo(resources, info);
        return absl::OkStatus();
      });
  AddForeignCall<oe::GetModelInfoRequest, oe::ModelInfo>(
      service.get(), calls, "/openengine.v1.Control/GetModelInfo",
      [resources](const oe::GetModelInfoRequest& request, oe::ModelInfo* info) {
        return FillModelInfo(resources.generate.model, request, info);
      });
  AddForeignCall<oe::GetLoadRequest, oe::LoadInfo>(
      service.get(), calls, "/openengine.v1.Control/GetLoad",
      [resources](const oe::GetLoadRequest& request, oe::LoadInfo* info) {
        FillLoad(resources, request, info);
        return absl::OkStatus();
      });
  AddForeignCall<oe::HealthRequest, oe::HealthResponse>(
      service.get(), calls, "/openengine.v1.Control/Health",
      [resources](const oe::HealthRequest& request, oe::HealthResponse* response) {
        return FillHealth(resources, request, response);
      });
  AddForeignCall<oe::AbortRequest, oe::AbortResponse>(
      service.get(), calls, "/openengine.v1.Control/Abort",
      [resources](const Caller& caller, const oe::AbortRequest& request,
                  oe::AbortResponse* response) {
        return Abort(resources, caller, request, response);
      });
  AddForeignCall<oe::GetKvEventSourcesRequest, oe::GetKvEventSourcesResponse>(
      service.get(), calls, "/openengine.v1.Control/GetKvEventSources",
      [](const oe::GetKvEventSourcesRequest&, oe::GetKvEventSourcesResponse*) {
        return absl::OkStatus();  // there are none beside this port's SubscribeKvEvents
      });
  AddLora(service.get(), calls);
  service->Add("/openengine.v1.Control/SubscribeKvEvents", OpenEngineKvEvents(&resources.sessions));
  return service;
}

}  // namespace quire
