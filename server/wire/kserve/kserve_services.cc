// Answers to the questions that clients of Triton ask before and beside inference.
#include "server/wire/kserve/kserve_services.h"

#include <iterator>
#include <string>

#include "engine/base/status_macros.h"
#include "field/kserve.pb.h"
#include "server/generate/generate_call.h"
#include "server/wire/engine_trouble.h"
#include "server/wire/foreign_call.h"
#include "server/wire/kserve/infer_parameters.h"
#include "server/wire/kserve/infer_request.h"
#include "server/wire/kserve/kserve_format.h"
#include "server/wire/kserve/model_stream.h"
#include "server/wire/refused_methods.h"
#include "version/build_facts.h"

namespace quire {
namespace {

constexpr char kRepository[] = "the server serves one model, chosen when it starts";
constexpr char kSharedMemory[] = "send the tensors' contents in the request";

constexpr RefusedMethod kRefused[] = {
    {"/inference.GRPCInferenceService/RepositoryIndex", kRepository},
    {"/inference.GRPCInferenceService/RepositoryModelLoad", kRepository},
    {"/inference.GRPCInferenceService/RepositoryModelUnload", kRepository},
    {"/inference.GRPCInferenceService/SystemSharedMemoryStatus", kSharedMemory},
    {"/inference.GRPCInferenceService/SystemSharedMemoryRegister", kSharedMemory},
    {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister", kSharedMemory},
    {"/inference.GRPCInferenceService/CudaSharedMemoryStatus", kSharedMemory},
    {"/inference.GRPCInferenceService/CudaSharedMemoryRegister", kSharedMemory},
    {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", kSharedMemory},
    {"/inference.GRPCInferenceService/TraceSetting",
     "--otlp-endpoint traces requests, and quire.v1.Control/Trace records steps"},
    {"/inference.GRPCInferenceService/LogSettings", "log settings are flags of the server"},
};

constexpr char kPlatform[] = "quire";

struct Datatype {
  const char* name;
  inference::DataType type;
};
constexpr Datatype kDatatypes[] = {
    {"BOOL", inference::TYPE_BOOL},     {"INT32", inference::TYPE_INT32},
    {"UINT32", inference::TYPE_UINT32}, {"UINT64", inference::TYPE_UINT64},
    {"FP32", inference::TYPE_FP32},     {"BYTES", inference::TYPE_STRING},
};

inference::DataType TypeOf(const std::string& datatype) {
  for (const Datatype& each : kDatatypes) {
    if (datatype == each.name) return each.type;
  }
  return inference::TYPE_INVALID;
}

constexpr InferInput kOutputs[] = {
    {"text_output", "BYTES", false},
    {"finish_reason", "BYTES", false},
    {"num_input_tokens", "UINT32", false},
    {"num_output_tokens", "UINT32", false},
};

bool Ready(const WireResources& resources) {
  return !resources.generate.drain.draining() && EngineTrouble(resources).empty();
}

void FillMetadata(const ServingModel& model, inference::ModelMetadataResponse* response) {
  response->set_name(model.name);
  response->add_versions(kModelVersion);
  response->set_platform(kPlatform);
  const auto add = [](const InferInput& from,
                      inference::ModelMetadataResponse::TensorMetadata* to) {
    to->set_name(from.name);
    to->set_datatype(from.datatype);
    to->add_shape(from.list ? -1 : 1);
  };
  for (const InferInput& input : InferInputs()) add(input, response->add_inputs());
  for (const InferInput& output : kOutputs) add(output, response->add_outputs());
}

void FillConfig(const ServingModel& model, inference::ModelConfig* config) {
  config->set_name(model.name);
  config->set_platform(kPlatform);
  config->set_backend(kPlatform);
  config->set_max_batch_size(0);
  config->mutable_model_transaction_policy()->set_decoupled(true);
  for (const InferInput& input : InferInputs()) {
    inference::ModelInput* to = config->add_input();
    to->set_name(input.name);
    to->set_data_type(TypeOf(input.datatype));
    to->add_dims(input.list ? -1 : 1);
    to->set_optional(std::string("text_input") != input.name);
  }
  for (const InferInput& output : kOutputs) {
    inference::ModelOutput* to = config->add_output();
    to->set_name(output.name);
    to->set_data_type(TypeOf(output.datatype));
    to->add_dims(1);
  }
}

void FillStatistics(const ServingModel& model, const InferCounters& counters,
                    inference::ModelStatistics* out) {
  const uint64_t succeeded = counters.succeeded;
  out->set_name(model.name);
  out->set_version(kModelVersion);
  out->set_last_inference(counters.last_unix_ms);
  out->set_inference_count(succeeded);
  out->set_execution_count(succeeded);
  inference::InferStatistics* stats = out->mutable_inference_stats();
  const auto set = [](uint64_t count, uint64_t ns, inference::StatisticDuration* to) {
    to->set_count(count);
    to->set_ns(ns);
  };
  set(succeeded, counters.total_ns, stats->mutable_success());
  set(counters.failed, 0, stats->mutable_fail());
  set(succeeded, counters.queue_ns, stats->mutable_queue());
  set(succeeded, 0, stats->mutable_compute_input());
  set(succeeded, counters.compute_ns, stats->mutable_compute_infer());
  set(succeeded, 0, stats->mutable_compute_output());
}

void AddServerCalls(RawService* service, const WireResources& resources) {
  const CallResources* calls = &resources.generate.calls;
  AddForeignCall<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      service, calls, "/inference.GRPCInferenceService/ServerLive",
      [](const inference::ServerLiveRequest&, inference::ServerLiveResponse* response) {
        response->set_live(true);
        return absl::OkStatus();
      });
  AddForeignCall<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      service, calls, "/inference.GRPCInferenceService/ServerReady",
      [resources](const inference::ServerReadyRequest&, inference::ServerReadyResponse* response) {
        response->set_ready(Ready(resources));
        return absl::OkStatus();
      });
  AddForeignCall<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      service, calls, "/inference.GRPCInferenceService/ServerMetadata",
      [](const inference::ServerMetadataRequest&, inference::ServerMetadataResponse* response) {
        response->set_name("quire");
        response->set_version(ThisBuild().version);
        for (const char* extension : {"model_configuration", "statistics", "binary_tensor_data"}) {
          response->add_extensions(extension);
        }
        return absl::OkStatus();
      });
}

void AddModelCalls(RawService* service, const WireResources& resources,
                   const std::shared_ptr<InferCounters>& counters) {
  const CallResources* calls = &resources.generate.calls;
  const ServingModel* model = &resources.generate.model;
  AddForeignCall<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      service, calls, "/inference.GRPCInferenceService/ModelReady",
      [resources, model](const inference::ModelReadyRequest& request,
                         inference::ModelReadyResponse* response) {
        // A model that is not here is not ready, which is no error in this protocol.
        const absl::Status here = CheckModel(request.name(), request.version(), *model);
        if (absl::IsInvalidArgument(here)) return here;
        response->set_ready(here.ok() && Ready(resources));
        return absl::OkStatus();
      });
  AddForeignCall<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      service, calls, "/inference.GRPCInferenceService/ModelMetadata",
      [model](const inference::ModelMetadataRequest& request,
              inference::ModelMetadataResponse* response) {
        RETURN_IF_ERROR(CheckModel(request.name(), request.version(), *model));
        FillMetadata(*model, response);
        return absl::OkStatus();
      });
  AddForeignCall<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      service, calls, "/inference.GRPCInferenceService/ModelConfig",
      [model](const inference::ModelConfigRequest& request,
              inference::ModelConfigResponse* response) {
        RETURN_IF_ERROR(CheckModel(request.name(), request.version(), *model));
        FillConfig(*model, response->mutable_config());
        return absl::OkStatus();
      });
  AddForeignCall<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      service, calls, "/inference.GRPCInferenceService/ModelStatistics",
      [model, counters](const inference::ModelStatisticsRequest& request,
                        inference::ModelStatisticsResponse* response) {
        if (!request.name().empty()) {
          RETURN_IF_ERROR(CheckModel(request.name(), request.version(), *model));
        }
        FillStatistics(*model, *counters, response->add_model_stats());
        return absl::OkStatus();
      });
}

}  // namespace

std::unique_ptr<RawService> MakeKserve(const WireResources& resources) {
  auto service = std::make_unique<RawService>(&resources.generate.calls.door);
  const auto counters = std::make_shared<InferCounters>();
  AddServerCalls(service.get(), resources);
  AddModelCalls(service.get(), resources, counters);
  service->Add("/inference.GRPCInferenceService/ModelInfer",
               UnaryGenerate(&resources.generate, {"inference.GRPCInferenceService/ModelInfer",
                                                   [counters](const ServingModel& model) {
                                                     return ModelInferFormat(model, counters.get());
                                                   }}));
  service->Add("/inference.GRPCInferenceService/ModelStreamInfer",
               ModelStream(&resources.generate, counters));
  AddRefusedMethods(service.get(), &resources.generate.calls, kRefused);
  return service;
}

}  // namespace quire
