// The methods of vllm.grpc.engine.VllmEngine. Facts about media, data parallelism, KV transfer and
// parsers are left out: this server has none of them.
#include "server/wire/vllm_engine/vllm_service.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "field/smg_common.pb.h"
#include "field/vllm_engine.pb.h"
#include "server/call/message_call.h"
#include "server/call/status_codec.h"
#include "server/generate/abort_streams.h"
#include "server/generate/stream_table.h"
#include "server/session/session_resources.h"
#include "server/wire/engine_trouble.h"
#include "server/wire/unknown_fields.h"
#include "server/wire/vllm_engine/tokenizer_bundle.h"
#include "server/wire/vllm_engine/vllm_generate.h"
#include "server/wire/vllm_engine/vllm_request.h"
#include "server/wire/vllm_engine/vllm_streams.h"
#include "version/build_facts.h"

namespace quire {
namespace {

namespace wire = ::vllm::grpc::engine;
namespace smg = ::smg::grpc::common;

constexpr int kMaxAbortIds = 1024;
constexpr char kTokenizerByCall[] = "/tokenizer-by-rpc/";
// Without a number of steps a profile ends with StopProfile, or after this many.
constexpr int32_t kMaxProfiledSteps = 100'000;

int32_t Clamp(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max()));
}

// Tokens a second between two looks that are at least a second apart.
class TokenRate {
 public:
  double At(int64_t now_ns, uint64_t tokens) {
    const std::lock_guard lock(mutex_);
    const int64_t elapsed_ns = now_ns - at_ns_;
    if (at_ns_ != 0 && elapsed_ns < kLeastNs) return rate_;
    if (at_ns_ != 0) {
      rate_ = static_cast<double>(tokens - tokens_) / (static_cast<double>(elapsed_ns) * 1e-9);
    }
    at_ns_ = now_ns;
    tokens_ = tokens;
    return rate_;
  }

 private:
  static constexpr int64_t kLeastNs = 1'000'000'000;
  std::mutex mutex_;
  int64_t at_ns_ = 0;
  uint64_t tokens_ = 0;
  double rate_ = 0;
};

std::string TokenizerFolder(const ServingModel& model) {
  return model.text_directory.empty() ? model.setup.config.model : model.text_directory;
}

// The file of the template that chats take, which --chat-template may have chosen; empty: a member
// of a JSON file.
std::string TemplateFile(const ServingModel& model) {
  for (const ChatTemplates::Origin& origin : model.chat_templates.List()) {
    if (origin.name == "default" && !origin.file.ends_with(".json")) return origin.file;
  }
  return "";
}

// Everything that the methods share; lives with the service.
struct Facts {
  const GenerateResources* generate;
  int64_t started_ns;
  TokenRate rate;
  SharedTokenizerBundle tokenizer;
};

// The health that balancers see, with the reason.
void FillHealth(const WireResources& resources, wire::HealthCheckResponse* out) {
  std::string trouble = EngineTrouble(resources);
  if (trouble.empty() && resources.generate.drain.draining()) trouble = "the server is draining";
  out->set_healthy(trouble.empty());
  out->set_message(trouble.empty() ? "serving" : trouble);
}

// The defaults that quire.v1 applies to requests that leave these open.
std::string SamplingDefaults(const GenerationDefaults& defaults) {
  nlohmann::json json = nlohmann::json::object();
  const auto put = [&](const char* name, const auto& value) {
    // By its decimal digits: 0.7, not the 0.699999988 of a float.
    if (value.has_value()) json[name] = nlohmann::json::parse(absl::StrCat(*value));
  };
  put("temperature", defaults.do_sample ? defaults.temperature : std::optional<float>(0.0f));
  put("top_k", defaults.top_k);
  put("top_p", defaults.top_p);
  put("min_p", defaults.min_p);
  put("repetition_penalty", defaults.repetition_penalty);
  return json.empty() ? "" : json.dump();
}

void FillModelInfo(const ServingModel& model, wire::GetModelInfoResponse* out) {
  const ModelConfig& config = model.setup.model;
  // The gateway looks for the tokenizer at this path of its own host, takes what is no path for a
  // name at a public hub, and then calls GetTokenizer. So it is a path that no host has.
  const std::string path = std::string(kTokenizerByCall) + model.name;
  out->set_model_path(path);
  out->set_tokenizer_path(path);
  out->set_served_model_name(model.name);
  out->set_is_generation(true);
  out->set_max_context_length(static_cast<uint32_t>(model.setup.limits.max_model_len));
  out->set_max_req_input_len(Clamp(model.setup.limits.max_model_len - 1));
  out->set_vocab_size(static_cast<uint32_t>(config.vocab_size));
  out->set_model_type(config.model_type);
  out->add_architectures(config.architecture);
  for (const int32_t id : config.eos_token_ids) out->add_eos_token_ids(id);
  out->set_bos_token_id(config.bos_token_id.value_or(0));
  out->set_default_sampling_params_json(SamplingDefaults(config.generation));
}

void FillServerInfo(const Facts& facts, wire::GetServerInfoResponse* out) {
  const GenerateResources& generate = *facts.generate;
  const EngineSetup& setup = generate.model.setup;
  const SchedulerLoad load = generate.engine.Stats().load;
  out->set_active_requests(static_cast<uint32_t>(load.running + load.waiting + load.paused));
  out->set_uptime_seconds(static_cast<double>(SteadyNowNs() - facts.started_ns) * 1e-9);
  out->set_server_type("quire");
  out->set_data_parallel_size(1);
  out->set_kv_cache_dtype(setup.config.kv_cache_dtype);
  out->set_model_dtype(setup.config.dtype);
  out->set_block_size(setup.memory.block_size);
  out->set_max_num_seqs(setup.config.max_num_seqs);
}

absl::Status FillLoads(Facts& facts, const wire::GetLoadsRequest& request,
                       wire::GetLoadsResponse* out) {
  if (request.dp_rank() != 0) return InvalidField("dp_rank", "this server has rank 0 alone");
  const EngineSetup& setup = facts.generate->model.setup;
  const EngineStats stats = facts.generate->engine.Stats();
  const int64_t block_size = setup.memory.block_size;
  const int32_t total = std::max(stats.load.total_blocks, 1);
  const int32_t used = stats.load.total_blocks - stats.load.free_blocks;
  const int32_t max_running = std::max(setup.config.max_num_seqs, 1);
  const double queried = static_cast<double>(std::max<int64_t>(stats.cache.queried_tokens, 1));
  out->set_timestamp(absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()));
  out->set_version(ThisBuild().version);
  out->set_dp_rank_count(1);
  wire::SchedulerLoad* const load = out->add_loads();
  load->set_num_running_reqs(stats.load.running);
  load->set_num_waiting_reqs(stats.load.waiting);
  load->set_num_total_reqs(stats.load.running + stats.load.waiting);
  load->set_num_waiting_uncached_tokens(Clamp(stats.load.waiting_tokens));
  load->set_num_used_tokens(Clamp(used * block_size));
  load->set_max_total_num_tokens(Clamp(stats.load.total_blocks * block_size));
  load->set_token_usage(static_cast<double>(used) / total);
  load->set_gen_throughput(facts.rate.At(SteadyNowNs(), stats.generated_tokens));
  load->set_cache_hit_rate(
      static_cast<double>(stats.cache.device_tokens + stats.cache.host_tokens) / queried);
  load->set_utilization(static_cast<double>(stats.load.running) / max_running);
  load->set_max_running_requests(setup.config.max_num_seqs);
  return absl::OkStatus();
}

// Ids that are not live are no error: the gateway aborts what may have ended.
absl::Status Abort(const GenerateResources& generate, const Caller& caller,
                   const wire::AbortRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                   IdsToAbort(request.request_ids(), kMaxAbortIds));
  const auto found = generate.streams.Find(ids, MayEnd(caller));
  AbortStreams({.caller = caller,
                .method = "vllm.grpc.engine.VllmEngine/Abort",
                .named = static_cast<size_t>(request.request_ids_size())},
               found);
  return absl::OkStatus();
}

absl::Status StartProfile(const GenerateResources& generate,
                          const smg::StartProfileRequest& request, smg::ProfileResponse* out) {
  static constexpr char kNot[] = "this server's profile has no such choice; leave it out";
  if (request.has_output_dir()) {
    return InvalidField("output_dir", "the profiler that is attached to the workers has its own");
  }
  if (request.has_start_step()) return InvalidField("start_step", kNot);
  if (!request.activities().empty()) return InvalidField("activities", kNot);
  if (request.has_with_stack()) return InvalidField("with_stack", kNot);
  if (request.has_record_shapes()) return InvalidField("record_shapes", kNot);
  if (request.profile_by_stage()) return InvalidField("profile_by_stage", kNot);
  if (request.has_num_steps() &&
      (request.num_steps() < 1 || request.num_steps() > kMaxProfiledSteps)) {
    return InvalidField("num_steps", "must be 1 to 100000");
  }
  const int32_t steps = request.has_num_steps() ? request.num_steps() : kMaxProfiledSteps;
  generate.engine.ProfileSteps(steps, /*uncaptured=*/false);
  out->set_success(true);
  out->set_message("a profiler that is attached to the workers records the next " +
                   std::to_string(steps) + " steps, or until StopProfile");
  return absl::OkStatus();
}

// AddCall with a request that has no unknown fields.
template <typename Request, typename Response, typename Function>
void AddStrict(RawService* service, const CallResources* calls, const char* path,
               Function function) {
  AddCall<Request, Response>(
      service, calls, path, CallCost::kQuick,
      [function = std::move(function)](const Caller& caller, const Request& request,
                                       Response* response) -> absl::Status {
        RETURN_IF_ERROR(CheckNoUnknownFields(request));
        return function(caller, request, response);
      });
}

void AddInfo(RawService* service, const WireResources& resources,
             const std::shared_ptr<Facts>& facts) {
  const CallResources* const calls = &resources.generate.calls;
  AddStrict<wire::HealthCheckRequest, wire::HealthCheckResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/HealthCheck",
      [resources](const Caller&, const auto&, wire::HealthCheckResponse* out) {
        FillHealth(resources, out);
        return absl::OkStatus();
      });
  AddStrict<wire::GetModelInfoRequest, wire::GetModelInfoResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/GetModelInfo",
      [facts](const Caller&, const auto&, wire::GetModelInfoResponse* out) {
        FillModelInfo(facts->generate->model, out);
        return absl::OkStatus();
      });
  AddStrict<wire::GetServerInfoRequest, wire::GetServerInfoResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/GetServerInfo",
      [facts](const Caller&, const auto&, wire::GetServerInfoResponse* out) {
        FillServerInfo(*facts, out);
        return absl::OkStatus();
      });
  AddStrict<wire::GetLoadsRequest, wire::GetLoadsResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/GetLoads",
      [facts](const Caller&, const wire::GetLoadsRequest& request, wire::GetLoadsResponse* out) {
        return FillLoads(*facts, request, out);
      });
}

void AddControl(RawService* service, const CallResources* calls,
                const std::shared_ptr<Facts>& facts) {
  AddStrict<wire::AbortRequest, wire::AbortResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/Abort",
      [facts](const Caller& caller, const wire::AbortRequest& request, wire::AbortResponse*) {
        return Abort(*facts->generate, caller, request);
      });
  AddStrict<smg::StartProfileRequest, smg::ProfileResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/StartProfile",
      [facts](const Caller&, const smg::StartProfileRequest& request, smg::ProfileResponse* out) {
        return StartProfile(*facts->generate, request, out);
      });
  AddStrict<smg::StopProfileRequest, smg::ProfileResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/StopProfile",
      [facts](const Caller&, const auto&, smg::ProfileResponse* out) {
        facts->generate->engine.ProfileSteps(0, false);
        out->set_success(true);
        return absl::OkStatus();
      });
  AddStrict<wire::EmbedRequest, wire::EmbedResponse>(
      service, calls, "/vllm.grpc.engine.VllmEngine/Embed",
      [](const Caller&, const auto&, wire::EmbedResponse*) {
        return Refusal(absl::StatusCode::kUnimplemented, "NO_EMBEDDINGS",
                       "this protocol's embeddings are not served; use quire.v1.Inference/Embed");
      });
}

}  // namespace

std::unique_ptr<RawService> MakeVllmEngine(const WireResources& resources) {
  const GenerateResources* const generate = &resources.generate;
  SessionResources* const sessions = &resources.sessions;
  const std::shared_ptr<Facts> facts(new Facts{
      generate,
      resources.started_ns,
      {},
      SharedTokenizerBundle(TokenizerFolder(generate->model), TemplateFile(generate->model))});
  auto service = std::make_unique<RawService>(&generate->calls.door);
  service->Add("/vllm.grpc.engine.VllmEngine/Generate",
               RawService::ServerStreaming(
                   [generate](const IncomingCall& call, const grpc::ByteBuffer* request) {
                     return StartVllmGenerate(generate, call, request);
                   }));
  AddInfo(service.get(), resources, facts);
  AddControl(service.get(), &generate->calls, facts);
  service->Add(
      "/vllm.grpc.engine.VllmEngine/GetTokenizer",
      GetTokenizerCall(sessions, std::shared_ptr<SharedTokenizerBundle>(facts, &facts->tokenizer)));
  service->Add("/vllm.grpc.engine.VllmEngine/FlushCache", FlushCacheCall(sessions));
  service->Add("/vllm.grpc.engine.VllmEngine/SubscribeKvEvents", SubscribeKvEventsCall(sessions));
  return service;
}

}  // namespace quire
