// Declares the few functions, structures and constants of the library that are used, as NVIDIA's
// NVML API reference defines them. All functions but three may be missing.
#include "server/metrics/gpu/nvml.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace quire {
namespace {

using Device = struct nvmlDevice_st*;
using Sample = struct nvmlGpmSample_st*;
using Return = int;  // nvmlReturn_t
using Long = unsigned long long;

constexpr Return kSuccess = 0;
constexpr int kMaxLinks = 18;        // of Hopper; more than a GPU has is refused link by link
constexpr int kSmClock = 1;          // NVML_CLOCK_SM
constexpr int kMemoryClock = 2;      // NVML_CLOCK_MEM
constexpr int kGpuSensor = 0;        // NVML_TEMPERATURE_GPU
constexpr int kVolatileEcc = 0;      // NVML_VOLATILE_ECC: since the driver was loaded
constexpr unsigned kLinkSent = 138;  // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, KiB
constexpr unsigned kLinkReceived = 139;
constexpr unsigned kAllLinks = ~0u;                                 // as a field's scope
constexpr unsigned kGpmVersion = 1;                                 // of both structures
constexpr unsigned kSmBusy = 2, kTensorBusy = 5, kMemoryBusy = 10;  // NVML_GPM_METRIC_*, percent

struct Utilization {
  unsigned gpu, memory;  // percent of time
};
struct Memory {
  Long total, free, used;  // bytes
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int value_type;
  Return result;
  Long value;
};
struct GpmSupport {
  unsigned version, supported;
};
struct GpmMetric {
  unsigned id;
  Return result;
  double value;
  struct {
    char *short_name, *long_name, *unit;
  } info;
};
// The library reads and writes as many metrics as `count` says.
struct GpmMetrics {
  unsigned version, count;
  Sample before, after;
  GpmMetric metrics[3];
};
// The layouts of NVIDIA's header on 64-bit Linux.
static_assert(sizeof(Memory) == 24 && sizeof(FieldValue) == 40);
static_assert(sizeof(GpmMetric) == 40 && offsetof(GpmMetrics, metrics) == 24);

// The functions; null where the library has none.
struct Functions {
  Return (*Init)();
  Return (*Shutdown)();
  const char* (*ErrorString)(Return);
  Return (*HandleByUuid)(const char*, Device*);
  Return (*Index)(Device, unsigned*);
  Return (*UtilizationRates)(Device, Utilization*);
  Return (*MemoryInfo)(Device, Memory*);
  Return (*PowerUsage)(Device, unsigned*);        // mW
  Return (*PowerLimit)(Device, unsigned*);        // mW
  Return (*Energy)(Device, Long*);                // mJ
  Return (*Temperature)(Device, int, unsigned*);  // degrees Celsius
  Return (*Clock)(Device, int, unsigned*);        // MHz
  Return (*MaxClock)(Device, int, unsigned*);
  Return (*ClockReasons)(Device, Long*);  // a mask
  Return (*EccErrors)(Device, int, int, Long*);
  Return (*LinkState)(Device, unsigned, int*);
  Return (*LinkErrors)(Device, unsigned, int, Long*);
  Return (*FieldValues)(Device, int, FieldValue*);
  Return (*GpmSupported)(Device, GpmSupport*);
  Return (*GpmAlloc)(Sample*);
  Return (*GpmFree)(Sample);
  Return (*GpmSample)(Device, Sample);
  Return (*GpmGet)(GpmMetrics*);
};

template <typename Function>
bool Bind(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

// False if one of the functions is missing without which nothing can be read.
bool BindAll(void* handle, Functions* f) {
  Bind(handle, "nvmlErrorString", &f->ErrorString);
  Bind(handle, "nvmlDeviceGetIndex", &f->Index);
  Bind(handle, "nvmlDeviceGetUtilizationRates", &f->UtilizationRates);
  Bind(handle, "nvmlDeviceGetMemoryInfo", &f->MemoryInfo);
  Bind(handle, "nvmlDeviceGetPowerUsage", &f->PowerUsage);
  Bind(handle, "nvmlDeviceGetEnforcedPowerLimit", &f->PowerLimit);
  Bind(handle, "nvmlDeviceGetTotalEnergyConsumption", &f->Energy);
  Bind(handle, "nvmlDeviceGetTemperature", &f->Temperature);
  Bind(handle, "nvmlDeviceGetClockInfo", &f->Clock);
  Bind(handle, "nvmlDeviceGetMaxClockInfo", &f->MaxClock);
  // The newer name, since driver 535, or the older one.
  if (!Bind(handle, "nvmlDeviceGetCurrentClocksEventReasons", &f->ClockReasons)) {
    Bind(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", &f->ClockReasons);
  }
  Bind(handle, "nvmlDeviceGetTotalEccErrors", &f->EccErrors);
  Bind(handle, "nvmlDeviceGetNvLinkState", &f->LinkState);
  Bind(handle, "nvmlDeviceGetNvLinkErrorCounter", &f->LinkErrors);
  Bind(handle, "nvmlDeviceGetFieldValues", &f->FieldValues);
  Bind(handle, "nvmlGpmQueryDeviceSupport", &f->GpmSupported);
  Bind(handle, "nvmlGpmSampleAlloc", &f->GpmAlloc);
  Bind(handle, "nvmlGpmSampleFree", &f->GpmFree);
  Bind(handle, "nvmlGpmSampleGet", &f->GpmSample);
  Bind(handle, "nvmlGpmMetricsGet", &f->GpmGet);
  return Bind(handle, "nvmlInit_v2", &f->Init) && Bind(handle, "nvmlShutdown", &f->Shutdown) &&
         Bind(handle, "nvmlDeviceGetHandleByUUID", &f->HandleByUuid);
}

// The result of function(arguments..., &value), times `unit`; empty if there is none.
template <typename Value, typename Function, typename... Arguments>
GpuFacts::Figure Call(double unit, Function function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != kSuccess) return std::nullopt;
  return static_cast<double>(value) * unit;
}

void Add(GpuFacts::Figure& sum, const GpuFacts::Figure& figure) {
  if (figure) sum = sum.value_or(0) + *figure;
}

}  // namespace

struct Nvml::State {
  // A GPU, and the last of the two samples whose difference gives its shares.
  struct Gpu {
    Device device = nullptr;
    std::string uuid;
    Sample before = nullptr, after = nullptr;  // null: the GPU has none
    bool sampled = false;                      // `before` holds a sample
  };

  ~State();
  void ReadShares(Gpu& gpu, GpuFacts& facts) const;
  void ReadLinks(Device device, GpuFacts& facts) const;

  void* handle = nullptr;
  Functions f{};
  bool initialized = false;
  std::vector<Gpu> gpus;
};

Nvml::State::~State() {
  for (const Gpu& gpu : gpus) {
    if (gpu.before != nullptr) f.GpmFree(gpu.before);
    if (gpu.after != nullptr) f.GpmFree(gpu.after);
  }
  if (initialized) f.Shutdown();
  if (handle != nullptr) dlclose(handle);
}

Nvml::Nvml(std::unique_ptr<State> state) : state_(std::move(state)) {}
Nvml::~Nvml() = default;

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  auto state = std::make_unique<State>();
  state->handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (state->handle == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(why == nullptr ? library : why);
  }
  if (!BindAll(state->handle, &state->f)) {
    return absl::NotFoundError(library + " lacks functions of NVML");
  }
  const Return result = state->f.Init();
  if (result != kSuccess) {
    auto* const text = state->f.ErrorString;
    return absl::UnavailableError(library + ": " +
                                  (text == nullptr ? std::to_string(result) : text(result)));
  }
  state->initialized = true;
  return std::unique_ptr<Nvml>(new Nvml(std::move(state)));
}

absl::StatusOr<size_t> Nvml::Find(const std::string& uuid) {
  const Functions& f = state_->f;
  State::Gpu gpu{.uuid = uuid};
  if (f.HandleByUuid(uuid.c_str(), &gpu.device) != kSuccess) {
    return absl::NotFoundError("NVML knows no GPU " + uuid);
  }
  GpmSupport support{.version = kGpmVersion};
  if (f.GpmSupported != nullptr && f.GpmAlloc != nullptr && f.GpmFree != nullptr &&
      f.GpmSample != nullptr && f.GpmGet != nullptr &&
      f.GpmSupported(gpu.device, &support) == kSuccess && support.supported != 0) {
    if (f.GpmAlloc(&gpu.before) != kSuccess) gpu.before = nullptr;
    if (f.GpmAlloc(&gpu.after) != kSuccess) gpu.after = nullptr;
  }
  state_->gpus.push_back(std::move(gpu));
  return state_->gpus.size() - 1;
}

// The shares between the last sample and a new one.
void Nvml::State::ReadShares(Gpu& gpu, GpuFacts& facts) const {
  if (gpu.before == nullptr || gpu.after == nullptr) return;
  if (f.GpmSample(gpu.device, gpu.after) != kSuccess) {
    gpu.sampled = false;
    return;
  }
  if (gpu.sampled) {
    GpmMetrics get{.version = kGpmVersion, .count = 3, .before = gpu.before, .after = gpu.after};
    get.metrics[0].id = kSmBusy;
    get.metrics[1].id = kTensorBusy;
    get.metrics[2].id = kMemoryBusy;
    const bool got = f.GpmGet(&get) == kSuccess;
    const auto share = [&](int i) -> GpuFacts::Figure {
      if (!got || get.metrics[i].result != kSuccess) return std::nullopt;
      return get.metrics[i].value * .01;
    };
    facts.sm_busy = share(0);
    facts.tensor_busy = share(1);
    facts.memory_busy = share(2);
  }
  std::swap(gpu.before, gpu.after);
  gpu.sampled = true;
}

void Nvml::State::ReadLinks(Device device, GpuFacts& facts) const {
  bool any = false;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    if (Call<int>(1, f.LinkState, device, link).value_or(0) == 0) continue;
    any = true;
    for (int error = 0; error < GpuFacts::kLinkErrors; ++error) {
      Add(facts.link_errors[error], Call<Long>(1, f.LinkErrors, device, link, error));
    }
  }
  if (!any || f.FieldValues == nullptr) return;
  FieldValue values[2] = {{.field = kLinkSent, .scope = kAllLinks},
                          {.field = kLinkReceived, .scope = kAllLinks}};
  if (f.FieldValues(device, 2, values) != kSuccess) return;
  const auto bytes = [](const FieldValue& value) -> GpuFacts::Figure {
    if (value.result != kSuccess) return std::nullopt;
    return static_cast<double>(value.value) * 1024;
  };
  facts.link_sent_bytes = bytes(values[0]);
  facts.link_received_bytes = bytes(values[1]);
}

GpuFacts Nvml::Read(size_t gpu) {
  State::Gpu& g = state_->gpus.at(gpu);
  const Functions& f = state_->f;
  const Device d = g.device;
  GpuFacts facts{.uuid = g.uuid};
  unsigned index = 0;
  if (f.Index != nullptr && f.Index(d, &index) == kSuccess) facts.index = std::to_string(index);
  Utilization use{};
  if (f.UtilizationRates != nullptr && f.UtilizationRates(d, &use) == kSuccess) {
    facts.busy = use.gpu * .01;
  }
  Memory memory{};
  if (f.MemoryInfo != nullptr && f.MemoryInfo(d, &memory) == kSuccess) {
    facts.memory_used_bytes = static_cast<double>(memory.used);
    facts.memory_total_bytes = static_cast<double>(memory.total);
  }
  facts.power_watts = Call<unsigned>(1e-3, f.PowerUsage, d);
  facts.power_limit_watts = Call<unsigned>(1e-3, f.PowerLimit, d);
  facts.energy_joules = Call<Long>(1e-3, f.Energy, d);
  facts.temperature_celsius = Call<unsigned>(1, f.Temperature, d, kGpuSensor);
  facts.sm_clock_hertz = Call<unsigned>(1e6, f.Clock, d, kSmClock);
  facts.sm_clock_max_hertz = Call<unsigned>(1e6, f.MaxClock, d, kSmClock);
  facts.memory_clock_hertz = Call<unsigned>(1e6, f.Clock, d, kMemoryClock);
  Long mask = 0;
  if (f.ClockReasons != nullptr && f.ClockReasons(d, &mask) == kSuccess) {
    // The bits have the order of GpuFacts::Limit.
    for (int i = 0; i < GpuFacts::kLimits; ++i)
      facts.limits[i] = static_cast<double>(mask >> i & 1);
  }
  facts.ecc_corrected = Call<Long>(1, f.EccErrors, d, 0, kVolatileEcc);
  facts.ecc_uncorrected = Call<Long>(1, f.EccErrors, d, 1, kVolatileEcc);
  state_->ReadShares(g, facts);
  state_->ReadLinks(d, facts);
  return facts;
}

}  // namespace quire
