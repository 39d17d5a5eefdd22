// A new method of any service gets a line here.
#include "server/identity/method_scopes.h"

#include <string>
#include <unordered_map>

namespace quire {
namespace {

constexpr Scopes kInfer{Scope::kInfer};
constexpr Scopes kSession{Scope::kSession};
constexpr Scopes kAdmin{Scope::kAdmin};
constexpr Scopes kMetrics{Scope::kMetrics, Scope::kAdmin};
// A client ends its own requests, an administrator all.
constexpr Scopes kAbort{Scope::kInfer, Scope::kAdmin};
// Routers with an ordinary key balance by these.
constexpr Scopes kGateway{Scope::kInfer, Scope::kMetrics, Scope::kAdmin};
// Facts about the server, which every client may want.
constexpr Scopes kAny = Scopes::All();

struct Service {
  const char* name;
  struct Method {
    const char* name;
    Scopes scopes;
  };
  std::initializer_list<Method> methods;
};

const Service kServices[] = {
    {"quire.v1.Inference",
     {{"Generate", kInfer},
      {"GenerateUnary", kInfer},
      {"Attach", kInfer},
      {"GenerateBatch", kInfer},
      {"Score", kInfer},
      {"Embed", kInfer},
      {"Tokenize", kInfer},
      {"Detokenize", kInfer}}},
    {"quire.v1.Sessions",
     {{"Create", kSession},
      {"Get", kSession},
      {"List", kSession},
      {"Touch", kSession},
      {"Fork", kSession},
      {"Truncate", kSession},
      {"Offload", kSession},
      {"Prefetch", kSession},
      {"Pin", kSession},
      {"Unpin", kSession},
      {"Close", kSession},
      {"Export", kSession},
      {"Import", kSession},
      {"Watch", kSession}}},
    {"quire.v1.Jobs",
     {{"Create", kInfer},
      {"Get", kInfer},
      {"List", kInfer},
      {"Cancel", kInfer},
      {"Delete", kInfer},
      {"Results", kInfer}}},
    {"quire.v1.Control",
     {{"GetServerInfo", kAny},
      {"GetModelInfo", kAny},
      {"GetMemoryPlan", kMetrics},
      {"GetLoad", kMetrics},
      {"GetMemory", kMetrics},
      {"Abort", kAbort},
      {"Drain", kAdmin},
      {"Undrain", kAdmin},
      {"Trace", kAdmin},
      {"FlushCache", kAdmin},
      {"SubscribeKvEvents", kMetrics}}},
    // Other projects' protocols. KV events show the prompts of all keys of the tenant.
    {"vllm.grpc.engine.VllmEngine",
     {{"Generate", kInfer},
      {"Embed", kInfer},
      {"Abort", kAbort},
      {"HealthCheck", kAny},
      {"GetModelInfo", kAny},
      {"GetServerInfo", kAny},
      {"GetTokenizer", kAny},
      {"GetLoads", kGateway},
      {"SubscribeKvEvents", kMetrics},
      {"FlushCache", kAdmin},
      {"StartProfile", kAdmin},
      {"StopProfile", kAdmin}}},
    {"vllm.Inference", {{"Generate", kInfer}, {"GenerateStream", kInfer}}},
    {"vllm.Control",
     {{"GetServerInfo", kAny},
      {"GetModelInfo", kAny},
      {"Abort", kAbort},
      {"GetKvEventSources", kAny},
      {"ListLoras", kAny},
      {"IsPaused", kAny},
      {"IsSleeping", kAny},
      {"LoadLora", kAdmin},
      {"UnloadLora", kAdmin},
      {"PauseGeneration", kAdmin},
      {"ResumeGeneration", kAdmin},
      {"Sleep", kAdmin},
      {"WakeUp", kAdmin},
      {"Shutdown", kAdmin},
      {"InitWeightTransferEngine", kAdmin},
      {"StartWeightUpdate", kAdmin},
      {"StartDraftWeightUpdate", kAdmin},
      {"UpdateWeights", kAdmin},
      {"FinishWeightUpdate", kAdmin},
      {"GetWeightVersion", kAny},
      {"UpdateWeightVersion", kAdmin}}},
    {"openengine.v1.Inference", {{"Generate", kInfer}}},
    {"openengine.v1.Control",
     {{"GetServerInfo", kAny},
      {"GetModelInfo", kAny},
      {"GetLoad", kGateway},
      {"Health", kAny},
      {"Abort", kAbort},
      {"ListLoras", kAny},
      {"LoadLora", kAdmin},
      {"UnloadLora", kAdmin},
      {"GetKvEventSources", kAny},
      {"SubscribeKvEvents", kMetrics}}},
    {"inference.GRPCInferenceService",
     {{"ServerLive", kAny},
      {"ServerReady", kAny},
      {"ModelReady", kAny},
      {"ServerMetadata", kAny},
      {"ModelMetadata", kAny},
      {"ModelConfig", kAny},
      {"ModelInfer", kInfer},
      {"ModelStreamInfer", kInfer},
      {"ModelStatistics", kMetrics},
      {"RepositoryIndex", kAny},
      {"RepositoryModelLoad", kAdmin},
      {"RepositoryModelUnload", kAdmin},
      {"SystemSharedMemoryStatus", kAdmin},
      {"SystemSharedMemoryRegister", kAdmin},
      {"SystemSharedMemoryUnregister", kAdmin},
      {"CudaSharedMemoryStatus", kAdmin},
      {"CudaSharedMemoryRegister", kAdmin},
      {"CudaSharedMemoryUnregister", kAdmin},
      {"TraceSetting", kAdmin},
      {"LogSettings", kAdmin}}},
    {"xds.service.orca.v3.OpenRcaService", {{"StreamCoreMetrics", kGateway}}},
    {"grpc.reflection.v1alpha.ServerReflection", {{"ServerReflectionInfo", kAny}}},
    {"grpc.reflection.v1.ServerReflection", {{"ServerReflectionInfo", kAny}}},
};
// Open without a key.
const char* const kOpen[] = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"};

std::unordered_map<std::string, MethodRule> MakeTable() {
  std::unordered_map<std::string, MethodRule> table;
  for (const Service& service : kServices) {
    for (const auto& [method, scopes] : service.methods) {
      table["/" + std::string(service.name) + "/" + method] = {.known = true, .scopes = scopes};
    }
  }
  for (const char* method : kOpen) table[method] = {.known = true, .open = true};
  return table;
}

}  // namespace

MethodRule RuleOf(std::string_view method) {
  static const std::unordered_map<std::string, MethodRule> table = MakeTable();
  const auto found = table.find(std::string(method));
  return found == table.end() ? MethodRule{} : found->second;
}

}  // namespace quire
