// A library with the names of NVML for tests: one GPU, whose figures are in the units of NVIDIA's
// API reference. FakeNvmlFail makes the calls of one function fail.
#include <cstring>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotFound = 6;      // NVML_ERROR_NOT_FOUND
constexpr int kNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED

// nvmlFieldValue_t
struct FieldValue {
  unsigned int fieldId;
  unsigned int scopeId;
  long long timestamp;
  long long latencyUsec;
  int valueType;
  int nvmlReturn;
  union {
    double dVal;
    unsigned long long ullVal;
  } value;
};
// nvmlGpmMetric_t
struct GpmMetric {
  unsigned int metricId;
  int nvmlReturn;
  double value;
  char* info[3];
};
// nvmlGpmMetricsGet_t
struct GpmMetricsGet {
  unsigned int version;
  unsigned int numMetrics;
  void* sample1;
  void* sample2;
  GpmMetric metrics[98];
};

int a_gpu;  // its address is the handle
std::string failing;
int samples = 0;  // taken so far

int Answer(const char* function, void* device) {
  if (device != &a_gpu) return kNotFound;
  return failing == function ? kNotSupported : kSuccess;
}

}  // namespace

extern "C" {

void FakeNvmlFail(const char* function) { failing = function; }

int nvmlInit_v2() { return failing == "nvmlInit_v2" ? 9 : kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-1") != 0) return kNotFound;
  *device = &a_gpu;
  return kSuccess;
}
int nvmlDeviceGetIndex(void* device, unsigned int* index) {
  *index = 3;
  return Answer("index", device);
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned int* gpu_memory) {
  gpu_memory[0] = 75;
  gpu_memory[1] = 40;
  return Answer("utilization", device);
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  total_free_used[0] = 150'000'000'000;
  total_free_used[1] = 50'000'000'000;
  total_free_used[2] = 100'000'000'000;
  return Answer("memory", device);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  *milliwatts = 512'500;
  return Answer("power", device);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned int* milliwatts) {
  *milliwatts = 700'000;
  return Answer("power limit", device);
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  *millijoules = 123'456;
  return Answer("energy", device);
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* celsius) {
  *celsius = 61;
  return sensor == 0 ? Answer("temperature", device) : kNotSupported;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned int* megahertz) {
  *megahertz = type == 1 ? 1755 : 2619;  // NVML_CLOCK_SM, NVML_CLOCK_MEM
  return type == 1 || type == 2 ? Answer("clock", device) : kNotSupported;
}
int nvmlDeviceGetMaxClockInfo(void* device, int, unsigned int* megahertz) {
  *megahertz = 1980;
  return Answer("max clock", device);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* mask) {
  *mask = 0x4 | 0x40;  // software power cap, hardware thermal slowdown
  return Answer("reasons", device);
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* errors) {
  *errors = type == 0 ? 5 : 2;  // corrected, uncorrected
  return counter == 0 ? Answer("ecc", device) : kNotSupported;
}
// Links 0 and 2 are up.
int nvmlDeviceGetNvLinkState(void* device, unsigned int link, int* state) {
  *state = link == 0 || link == 2;
  return link < 4 ? Answer("link", device) : kNotSupported;
}
int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned int link, int counter,
                                    unsigned long long* errors) {
  *errors = (link + 1) * 10 + counter;
  return Answer("link errors", device);
}
int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    const bool all_links = values[i].scopeId == 0xffffffff;
    const unsigned int field = values[i].fieldId;
    values[i].nvmlReturn = all_links && (field == 138 || field == 139) ? kSuccess : kNotSupported;
    values[i].value.ullVal = field == 138 ? 1000 : 2000;  // KiB sent, received
  }
  return Answer("fields", device);
}
int nvmlGpmQueryDeviceSupport(void* device, unsigned int* version_supported) {
  version_supported[1] = 1;
  return version_supported[0] == 1 ? Answer("gpm", device) : kNotSupported;
}
int nvmlGpmSampleAlloc(int** sample) {
  *sample = new int(0);
  return kSuccess;
}
int nvmlGpmSampleFree(int* sample) {
  delete sample;
  return kSuccess;
}
int nvmlGpmSampleGet(void* device, int* sample) {
  *sample = ++samples;
  return Answer("sample", device);
}
int nvmlGpmMetricsGet(GpmMetricsGet* get) {
  const auto* before = static_cast<int*>(get->sample1);
  const auto* after = static_cast<int*>(get->sample2);
  if (get->version != 1 || *before + 1 != *after) return kNotSupported;
  for (unsigned int i = 0; i < get->numMetrics; ++i) {
    GpmMetric& metric = get->metrics[i];
    metric.nvmlReturn = kSuccess;
    metric.value = metric.metricId == 2 ? 62.5 : metric.metricId == 10 ? 87.5 : 12.5;
  }
  return failing == "gpm get" ? kNotSupported : kSuccess;
}

}  // extern "C"
