// The methods of quire.v1.Control.
#include "server/front/control_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/config_quantization.h"
#include "quire/v1/control.pb.h"
#include "server/call/message_call.h"
#include "server/call/status_codec.h"
#include "server/front/memory_call.h"
#include "server/generate/abort_streams.h"
#include "server/generate/request_codec.h"
#include "server/generate/stream_table.h"
#include "server/kv_events/control_kv_calls.h"
#include "server/timeline/trace_call.h"
#include "version/build_facts.h"

namespace quire {
namespace {

v1::ServerInfo::State StateOf(const ControlResources& resources) {
  if (!resources.engine.Stats().fault.empty()) return v1::ServerInfo::STATE_FAULTED;
  return resources.drain.draining() ? v1::ServerInfo::STATE_DRAINING : v1::ServerInfo::STATE_READY;
}

void FillServerInfo(const ControlResources& resources, const ControlHooks& hooks,
                    v1::ServerInfo* info) {
  const EngineConfig& config = resources.model.setup.config;
  const BuildFacts& build = ThisBuild();
  info->set_version(build.version);
  info->set_commit(build.commit);
  info->set_compiler(build.compiler);
  info->set_cuda(build.cuda);
  info->set_build_type(build.build_type);
  info->set_device(resources.model.device_description);
  info->add_models(resources.model.name);
  for (const std::string& name : resources.model.other_names) info->add_models(name);
  info->set_tensor_parallel_size(static_cast<uint32_t>(config.tensor_parallel_size));
  info->set_uptime_seconds(static_cast<double>(SteadyNowNs() - hooks.started_ns) * 1e-9);
  info->set_instance_id(hooks.instance_id);
  info->set_state(StateOf(resources));
  info->set_max_request_bytes(static_cast<uint64_t>(resources.calls.options.max_request_bytes));
  info->set_max_running_requests(static_cast<uint32_t>(config.max_num_seqs));
  info->set_max_queued_requests(
      static_cast<uint32_t>(resources.model.setup.limits.max_num_queued_reqs));
  info->set_max_guesses(static_cast<uint32_t>(config.speculate));
  info->set_max_detach_seconds(resources.calls.options.max_detach_seconds);
  for (const std::string& name : resources.model.logit_processors.names()) {
    info->add_logit_processors(name);
  }
}

// Blocks that a request can get, without the null block.
uint32_t UsableBlocks(const EngineSetup& setup) {
  return static_cast<uint32_t>(std::max(setup.memory.num_blocks - 1, 0));
}

void FillModelInfo(const ServingModel& model, v1::ModelInfo* info) {
  const EngineSetup& setup = model.setup;
  info->set_model(model.name);
  info->set_architecture(setup.model.architecture);
  info->set_num_parameters(static_cast<uint64_t>(setup.model.NumParameters()));
  info->set_vocab_size(static_cast<uint32_t>(setup.model.vocab_size));
  info->set_max_model_len(static_cast<uint32_t>(setup.limits.max_model_len));
  info->set_num_layers(static_cast<uint32_t>(setup.model.num_layers));
  info->set_hidden_size(static_cast<uint32_t>(setup.model.hidden_size));
  info->set_dtype(setup.config.dtype);
  info->set_kv_cache_dtype(setup.config.kv_cache_dtype);
  info->set_block_size(static_cast<uint32_t>(setup.memory.block_size));
  info->set_num_blocks(UsableBlocks(setup));
  for (const int32_t id : setup.model.eos_token_ids) {
    info->add_eos_token_ids(static_cast<uint32_t>(id));
  }
  info->set_quantization(EncodingText(setup.model.quantization));
  info->set_has_chat_template(model.chat_templates.Choose("", /*has_tools=*/false).ok());
}

void FillLoad(const EngineStats& stats, int open_streams, v1::Load* load) {
  load->set_running_requests(static_cast<uint32_t>(stats.load.running));
  load->set_waiting_requests(static_cast<uint32_t>(stats.load.waiting));
  load->set_waiting_tokens(static_cast<uint64_t>(stats.load.waiting_tokens));
  load->set_free_blocks(static_cast<uint32_t>(stats.load.free_blocks));
  load->set_total_blocks(static_cast<uint32_t>(stats.load.total_blocks));
  const double total = std::max(stats.load.total_blocks, 1);
  load->set_kv_usage(1.0 - stats.load.free_blocks / total);
  load->set_steps(stats.steps);
  load->set_generated_tokens(stats.generated_tokens);
  load->set_prompt_tokens(stats.prompt_tokens);
  load->set_preemptions(stats.preemptions);
  load->set_open_streams(static_cast<uint32_t>(std::max(open_streams, 0)));
  load->set_cached_blocks(static_cast<uint32_t>(stats.cache.cached_blocks));
  load->set_host_pages_used(static_cast<uint32_t>(stats.cache.host_pages_used));
  load->set_host_pages(static_cast<uint32_t>(stats.cache.host_pages));
  load->set_sessions(static_cast<uint64_t>(stats.cache.sessions));
  load->set_session_tokens(static_cast<uint64_t>(stats.cache.session_tokens));
}

absl::Status Abort(const ControlResources& resources, const Caller& caller,
                   const v1::AbortRequest& request, v1::AbortResponse* response) {
  if (request.request_ids().empty() && !request.all()) {
    return InvalidField("request_ids", "is empty; name requests, or set all");
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, IdsToAbort(request.request_ids()));
  uint32_t remembered = 0;
  const auto streams = request.all() ? resources.streams.All(MayEnd(caller))
                                     : resources.streams.FindToAbort(ids, caller, &remembered);
  AbortStreams({.caller = caller,
                .method = "quire.v1.Control/Abort",
                .all = request.all(),
                .named = static_cast<size_t>(request.request_ids_size())},
               streams);
  response->set_aborted(static_cast<uint32_t>(streams.size()));
  response->set_remembered(remembered);
  return absl::OkStatus();
}

void Drain(const ControlResources& resources, const ControlHooks& hooks, const Caller& caller,
           const v1::DrainRequest& request, v1::DrainResponse* response) {
  hooks.drain(request.exit_when_idle());
  const SchedulerLoad load = resources.engine.Stats().load;
  response->set_running_requests(static_cast<uint32_t>(load.running));
  response->set_waiting_requests(static_cast<uint32_t>(load.waiting));
  Log(Severity::kInfo, "drain: new requests are refused",
      {{"tenant", caller.tenant_name},
       {"key", caller.key_id},
       {"exit_when_idle", request.exit_when_idle()},
       {"open_streams", resources.streams.open()}});
}

absl::Status Undrain(const ControlHooks& hooks, const Caller& caller,
                     v1::UndrainResponse* response) {
  ASSIGN_OR_RETURN(const bool was_draining, hooks.undrain());
  response->set_was_draining(was_draining);
  if (was_draining) {
    Log(Severity::kInfo, "undrain: new requests are accepted again",
        {{"tenant", caller.tenant_name}, {"key", caller.key_id}});
  }
  return absl::OkStatus();
}

}  // namespace

void FillMemoryPlan(const MemoryPlan& plan, v1::MemoryPlan* out) {
  for (const MemoryPlan::Part& part : plan.parts) {
    v1::MemoryPlan::Part* to = out->add_parts();
    to->set_name(part.name);
    to->set_bytes(static_cast<uint64_t>(part.bytes));
  }
  out->set_total_bytes(static_cast<uint64_t>(plan.total_bytes()));
  out->set_ranks(static_cast<uint32_t>(plan.ranks));
  out->set_num_blocks(static_cast<uint32_t>(std::max(plan.num_blocks - 1, 0)));
  out->set_block_size(static_cast<uint32_t>(plan.block_size));
  out->set_kv_tokens(static_cast<uint64_t>(plan.kv_tokens()));
  out->set_host_bytes(static_cast<uint64_t>(plan.host_bytes));
  out->set_host_kv_tokens(static_cast<uint64_t>(plan.host_kv_tokens()));
}

std::unique_ptr<RawService> MakeControlService(const ControlResources& resources,
                                               ControlHooks hooks) {
  auto service = std::make_unique<RawService>(&resources.calls.door);
  RawService* s = service.get();
  AddCall<v1::GetServerInfoRequest, v1::ServerInfo>(
      s, &resources.calls, "/quire.v1.Control/GetServerInfo", CallCost::kQuick,
      [resources, hooks](const v1::GetServerInfoRequest&, v1::ServerInfo* info) {
        FillServerInfo(resources, hooks, info);
        return absl::OkStatus();
      });
  AddCall<v1::GetModelInfoRequest, v1::ModelInfo>(
      s, &resources.calls, "/quire.v1.Control/GetModelInfo", CallCost::kQuick,
      [resources](const v1::GetModelInfoRequest& request, v1::ModelInfo* info) {
        if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), resources.model));
        FillModelInfo(resources.model, info);
        return absl::OkStatus();
      });
  AddCall<v1::GetMemoryPlanRequest, v1::MemoryPlan>(
      s, &resources.calls, "/quire.v1.Control/GetMemoryPlan", CallCost::kQuick,
      [resources](const v1::GetMemoryPlanRequest&, v1::MemoryPlan* plan) {
        FillMemoryPlan(resources.model.setup.memory, plan);
        return absl::OkStatus();
      });
  AddCall<v1::GetLoadRequest, v1::Load>(
      s, &resources.calls, "/quire.v1.Control/GetLoad", CallCost::kQuick,
      [resources](const Caller& caller, const v1::GetLoadRequest&, v1::Load* load) {
        FillLoad(resources.engine.Stats(), resources.streams.open(), load);
        const std::optional<double> predicted =
            resources.engine.PredictTtftSeconds(caller.tenant, 1);
        if (predicted.has_value()) load->set_predicted_first_token_seconds(*predicted);
        return absl::OkStatus();
      });
  AddCall<v1::AbortRequest, v1::AbortResponse>(
      s, &resources.calls, "/quire.v1.Control/Abort", CallCost::kQuick,
      [resources](const Caller& caller, const v1::AbortRequest& request,
                  v1::AbortResponse* response) {
        return Abort(resources, caller, request, response);
      });
  AddCall<v1::DrainRequest, v1::DrainResponse>(
      s, &resources.calls, "/quire.v1.Control/Drain", CallCost::kQuick,
      [resources, hooks](const Caller& caller, const v1::DrainRequest& request,
                         v1::DrainResponse* response) {
        Drain(resources, hooks, caller, request, response);
        return absl::OkStatus();
      });
  AddCall<v1::UndrainRequest, v1::UndrainResponse>(
      s, &resources.calls, "/quire.v1.Control/Undrain", CallCost::kQuick,
      [hooks](const Caller& caller, const v1::UndrainRequest&, v1::UndrainResponse* response) {
        return Undrain(hooks, caller, response);
      });
  s->Add("/quire.v1.Control/Trace",
         RawService::ServerStreaming(
             [resources](const IncomingCall& call, const grpc::ByteBuffer* request) {
               return StartTrace(&resources.sessions, call, request);
             }));
  s->Add("/quire.v1.Control/GetMemory", MemoryCall(resources));
  AddKvCalls(s, &resources.sessions);
  return service;
}

}  // namespace quire
