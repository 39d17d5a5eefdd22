// The GPUs' figures, from a library with NVML's names to the page of metrics. The expected values
// are those of fake_nvml.cc, converted by the units in NVIDIA's API reference.
// Covers server/metrics/gpu_metrics.cc, server/metrics/gpu/nvml.cc
#include "server/metrics/gpu_watch.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "server/metrics/gpu_metrics.h"
#include "server/metrics/metrics.h"
#include "tests/server/log_capture.h"

namespace quire {
namespace {

constexpr char kFake[] = QUIRE_BINARY_DIR "/tests/server/libfake_nvml.so";

// Makes the calls of one function of the fake fail, until the end of the test.
class FailingCall {
 public:
  explicit FailingCall(const char* function) : library_(dlopen(kFake, RTLD_NOW)) { Fail(function); }
  ~FailingCall() {
    Fail("");
    dlclose(library_);
  }

 private:
  void Fail(const char* function) {
    reinterpret_cast<void (*)(const char*)>(dlsym(library_, "FakeNvmlFail"))(function);
  }
  void* const library_;
};

// The second reading: shares need two.
GpuFacts ReadTwice(Nvml& nvml) {
  const size_t gpu = nvml.Find("GPU-1").value();
  nvml.Read(gpu);
  return nvml.Read(gpu);
}

TEST(NvmlTest, FiguresHaveBaseUnits) {
  auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const GpuFacts facts = ReadTwice(**nvml);
  EXPECT_EQ(facts.uuid, "GPU-1");
  EXPECT_EQ(facts.index, "3");
  EXPECT_DOUBLE_EQ(facts.busy.value(), .75);
  EXPECT_DOUBLE_EQ(facts.memory_used_bytes.value(), 100e9);
  EXPECT_DOUBLE_EQ(facts.memory_total_bytes.value(), 150e9);
  EXPECT_DOUBLE_EQ(facts.power_watts.value(), 512.5);
  EXPECT_DOUBLE_EQ(facts.power_limit_watts.value(), 700);
  EXPECT_DOUBLE_EQ(facts.energy_joules.value(), 123.456);
  EXPECT_DOUBLE_EQ(facts.temperature_celsius.value(), 61);
  EXPECT_DOUBLE_EQ(facts.sm_clock_hertz.value(), 1.755e9);
  EXPECT_DOUBLE_EQ(facts.sm_clock_max_hertz.value(), 1.98e9);
  EXPECT_DOUBLE_EQ(facts.memory_clock_hertz.value(), 2.619e9);
  EXPECT_EQ(facts.ecc_corrected, 5);
  EXPECT_EQ(facts.ecc_uncorrected, 2);
}

TEST(NvmlTest, SharesCoverTheTimeBetweenTwoReadings) {
  auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const size_t gpu = (*nvml)->Find("GPU-1").value();
  EXPECT_FALSE((*nvml)->Read(gpu).sm_busy.has_value());
  for (int i = 0; i < 3; ++i) {
    const GpuFacts facts = (*nvml)->Read(gpu);
    EXPECT_DOUBLE_EQ(facts.sm_busy.value(), .625);
    EXPECT_DOUBLE_EQ(facts.tensor_busy.value(), .125);
    EXPECT_DOUBLE_EQ(facts.memory_busy.value(), .875);
  }
}

TEST(NvmlTest, ClockReasonsAreTheBitsOfTheMask) {
  auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const GpuFacts facts = ReadTwice(**nvml);
  for (int i = 0; i < GpuFacts::kLimits; ++i) {
    const bool set = i == GpuFacts::kPowerCap || i == GpuFacts::kHardwareThermal;
    EXPECT_EQ(facts.limits[i], set) << i;
  }
}

TEST(NvmlTest, LinksAreSummed) {
  auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const GpuFacts facts = ReadTwice(**nvml);
  // Link 0 has 10 + counter errors, link 2 has 30 + counter; the others are down.
  EXPECT_EQ(facts.link_errors[GpuFacts::kReplay], 40);
  EXPECT_EQ(facts.link_errors[GpuFacts::kRecovery], 42);
  EXPECT_EQ(facts.link_errors[GpuFacts::kCrcFlit], 44);
  EXPECT_EQ(facts.link_errors[GpuFacts::kCrcData], 46);
  EXPECT_EQ(facts.link_sent_bytes, 1000 * 1024);
  EXPECT_EQ(facts.link_received_bytes, 2000 * 1024);
}

TEST(NvmlTest, AFigureThatTheDriverRefusesIsEmpty) {
  auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  for (const auto& [function, figure] :
       std::initializer_list<std::pair<const char*, GpuFacts::Figure GpuFacts::*>>{
           {"utilization", &GpuFacts::busy},
           {"memory", &GpuFacts::memory_used_bytes},
           {"power", &GpuFacts::power_watts},
           {"energy", &GpuFacts::energy_joules},
           {"temperature", &GpuFacts::temperature_celsius},
           {"clock", &GpuFacts::sm_clock_hertz},
           {"ecc", &GpuFacts::ecc_corrected},
           {"link", &GpuFacts::link_sent_bytes},
           {"fields", &GpuFacts::link_sent_bytes},
           {"gpm", &GpuFacts::sm_busy},
           {"sample", &GpuFacts::sm_busy},
           {"gpm get", &GpuFacts::memory_busy}}) {
    const FailingCall failing(function);
    const GpuFacts facts = ReadTwice(**nvml);
    EXPECT_FALSE((facts.*figure).has_value()) << function;
    EXPECT_TRUE(facts.power_limit_watts.has_value()) << function;
  }
}

TEST(NvmlTest, ErrorsSayWhatIsMissing) {
  const auto missing = Nvml::Open("libnvidia-ml-missing.so.1");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_NE(missing.status().message().find("libnvidia-ml-missing"), std::string::npos);
  EXPECT_TRUE(absl::IsNotFound(Nvml::Open("libm.so.6").status()));
  auto nvml = Nvml::Open(kFake);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_TRUE(absl::IsNotFound((*nvml)->Find("GPU-2").status()));
  const FailingCall failing("nvmlInit_v2");
  const auto refused = Nvml::Open(kFake);
  EXPECT_TRUE(absl::IsUnavailable(refused.status()));
  EXPECT_NE(refused.status().message().find("Driver Not Loaded"), std::string::npos);
}

std::string AwaitLine(ServerMetrics& metrics, const std::string& text) {
  std::string page;
  for (int i = 0; i < 1000; ++i) {
    page = metrics.Serialize({});
    if (page.find(text) != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return page;
}

TEST(GpuWatchTest, TheFiguresAreOnThePage) {
  ServerMetrics metrics("demo");
  const GpuWatch watch({"GPU-1"}, &metrics.gpus(), {.library = kFake, .seconds = .01});
  const std::string labels = "{model_name=\"demo\",gpu=\"3\",uuid=\"GPU-1\"}";
  const std::string page = AwaitLine(metrics, "quire_gpu_sm_busy_ratio" + labels);
  for (const std::string& line :
       {"quire_gpu_power_watts" + labels + " 512.5\n",
        "quire_gpu_sm_busy_ratio" + labels + " 0.625\n",
        "quire_gpu_energy_joules_total" + labels + " 123.456\n",
        std::string("quire_gpu_clocks_limited{model_name=\"demo\",gpu=\"3\",reason=\"power_cap\","
                    "uuid=\"GPU-1\"} 1\n")}) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

TEST(GpuWatchTest, AFigureThatGoesTakesItsSeriesWithIt) {
  ServerMetrics metrics("demo");
  GpuFacts facts{.uuid = "GPU-1", .index = "0"};
  facts.power_watts = 5;
  facts.energy_joules = 7;
  metrics.gpus().Set(facts);
  EXPECT_NE(metrics.Serialize({}).find("quire_gpu_power_watts{"), std::string::npos);
  facts.power_watts.reset();
  metrics.gpus().Set(facts);
  EXPECT_EQ(metrics.Serialize({}).find("quire_gpu_power_watts{"), std::string::npos);
  EXPECT_NE(metrics.Serialize({}).find("quire_gpu_energy_joules_total{"), std::string::npos);
}

TEST(GpuWatchTest, AMissingLibraryCostsOneLine) {
  LogCapture log;
  ServerMetrics metrics("demo");
  { const GpuWatch watch({"GPU-1", "GPU-2"}, &metrics.gpus(), {.library = "no-such.so"}); }
  Log(Severity::kInfo, "the end");
  while (log.Lines("the end").empty()) std::this_thread::yield();
  const std::vector<std::string> lines = log.Lines("no metrics");
  ASSERT_EQ(lines.size(), 1);
  EXPECT_NE(lines[0].find("no-such.so"), std::string::npos);
  EXPECT_EQ(metrics.Serialize({}).find("quire_gpu_"), std::string::npos);
}

}  // namespace
}  // namespace quire
