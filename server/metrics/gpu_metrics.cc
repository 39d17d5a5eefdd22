// A table lists the metrics, and which figure each series shows.
#include "server/metrics/gpu_metrics.h"

#include <map>
#include <string>
#include <vector>

#include "server/metrics/metric_registry.h"

namespace quire {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using Facts = const GpuFacts&;
using Figure = GpuFacts::Figure;

// One series of each GPU.
struct Row {
  const char* name;
  const char* help;
  Figure (*figure)(Facts);
  const char* label = nullptr;
  const char* label_value = nullptr;
};

template <GpuFacts::Limit limit>
Figure Limited(Facts facts) {
  return facts.limits[limit];
}
template <GpuFacts::LinkError error>
Figure LinkErrors(Facts facts) {
  return facts.link_errors[error];
}

constexpr char kLimited[] = "quire_gpu_clocks_limited";
constexpr char kLimitedHelp[] = "1 while the reason keeps the clocks below their maximum.";
constexpr char kErrors[] = "quire_gpu_nvlink_errors_total";
constexpr char kErrorsHelp[] = "Errors of all NVLink connections, by kind.";
constexpr char kLinkBytes[] = "quire_gpu_nvlink_bytes_total";
constexpr char kLinkBytesHelp[] = "Bytes over all NVLink connections, by direction.";
constexpr char kEcc[] = "quire_gpu_ecc_errors_total";
constexpr char kEccHelp[] = "Memory errors since the driver was loaded, by kind.";

constexpr Row kGauges[] = {
    {"quire_gpu_busy_ratio", "Fraction of time in which a kernel ran, 0 to 1.",
     [](Facts f) { return f.busy; }},
    {"quire_gpu_sm_busy_ratio", "Mean fraction of the multiprocessors that were busy, 0 to 1.",
     [](Facts f) { return f.sm_busy; }},
    {"quire_gpu_tensor_busy_ratio", "Fraction of time in which tensor cores worked, 0 to 1.",
     [](Facts f) { return f.tensor_busy; }},
    {"quire_gpu_memory_bandwidth_ratio",
     "Memory bandwidth in use, as a fraction of the theoretical maximum.",
     [](Facts f) { return f.memory_busy; }},
    {"quire_gpu_memory_used_bytes", "Memory in use by all processes.",
     [](Facts f) { return f.memory_used_bytes; }},
    {"quire_gpu_memory_total_bytes", "Memory.", [](Facts f) { return f.memory_total_bytes; }},
    {"quire_gpu_power_watts", "Power draw.", [](Facts f) { return f.power_watts; }},
    {"quire_gpu_power_limit_watts", "Enforced power limit.",
     [](Facts f) { return f.power_limit_watts; }},
    {"quire_gpu_temperature_celsius", "Temperature.",
     [](Facts f) { return f.temperature_celsius; }},
    {"quire_gpu_sm_clock_hertz", "Clock of the multiprocessors.",
     [](Facts f) { return f.sm_clock_hertz; }},
    {"quire_gpu_sm_clock_max_hertz", "Maximum clock of the multiprocessors.",
     [](Facts f) { return f.sm_clock_max_hertz; }},
    {"quire_gpu_memory_clock_hertz", "Clock of the memory.",
     [](Facts f) { return f.memory_clock_hertz; }},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kIdle>, "reason", "idle"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kUserClocks>, "reason", "user_clocks"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kPowerCap>, "reason", "power_cap"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kHardware>, "reason", "hardware"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kSyncBoost>, "reason", "sync_boost"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kSoftwareThermal>, "reason", "software_thermal"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kHardwareThermal>, "reason", "hardware_thermal"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kPowerBrake>, "reason", "power_brake"},
    {kLimited, kLimitedHelp, Limited<GpuFacts::kDisplayClocks>, "reason", "display_clocks"},
};

constexpr Row kCounters[] = {
    {"quire_gpu_energy_joules_total", "Energy used since the driver was loaded.",
     [](Facts f) { return f.energy_joules; }},
    {kEcc, kEccHelp, [](Facts f) { return f.ecc_corrected; }, "kind", "corrected"},
    {kEcc, kEccHelp, [](Facts f) { return f.ecc_uncorrected; }, "kind", "uncorrected"},
    {kLinkBytes, kLinkBytesHelp, [](Facts f) { return f.link_sent_bytes; }, "direction", "sent"},
    {kLinkBytes, kLinkBytesHelp, [](Facts f) { return f.link_received_bytes; }, "direction",
     "received"},
    {kErrors, kErrorsHelp, LinkErrors<GpuFacts::kReplay>, "kind", "replay"},
    {kErrors, kErrorsHelp, LinkErrors<GpuFacts::kRecovery>, "kind", "recovery"},
    {kErrors, kErrorsHelp, LinkErrors<GpuFacts::kCrcFlit>, "kind", "crc_flit"},
    {kErrors, kErrorsHelp, LinkErrors<GpuFacts::kCrcData>, "kind", "crc_data"},
};

void Show(Gauge& gauge, double value) { gauge.Set(value); }
void Show(Counter& counter, double value) { RaiseTo(counter, value); }

// Makes a series when its figure comes, and removes it when the figure goes.
template <typename Metric>
void Update(Family<Metric>& family, const prometheus::Labels& labels, const Figure& figure,
            Metric*& series) {
  if (figure) {
    if (series == nullptr) series = &family.Add(labels);
    Show(*series, *figure);
  } else if (series != nullptr) {
    family.Remove(series);
    series = nullptr;
  }
}

}  // namespace

struct GpuMetrics::State {
  // The series of a GPU, one for each row; null where it has none.
  struct Series {
    std::vector<Gauge*> gauges = std::vector<Gauge*>(std::size(kGauges));
    std::vector<Counter*> counters = std::vector<Counter*>(std::size(kCounters));
  };

  std::vector<Family<Gauge>*> gauges;      // one for each row
  std::vector<Family<Counter>*> counters;  // likewise
  std::map<std::string, Series> gpus;      // by UUID
};

GpuMetrics::GpuMetrics(MetricRegistry& registry) : state_(std::make_unique<State>()) {
  for (const Row& row : kGauges) state_->gauges.push_back(&registry.Gauges(row.name, row.help));
  for (const Row& row : kCounters) {
    state_->counters.push_back(&registry.Counters(row.name, row.help));
  }
}

GpuMetrics::~GpuMetrics() = default;

void GpuMetrics::Set(const GpuFacts& facts) {
  const auto labels = [&facts](const Row& row) {
    prometheus::Labels labels = {{"gpu", facts.index}, {"uuid", facts.uuid}};
    if (row.label != nullptr) labels.emplace(row.label, row.label_value);
    return labels;
  };
  State::Series& series = state_->gpus[facts.uuid];
  for (size_t i = 0; i < std::size(kGauges); ++i) {
    Update(*state_->gauges[i], labels(kGauges[i]), kGauges[i].figure(facts), series.gauges[i]);
  }
  for (size_t i = 0; i < std::size(kCounters); ++i) {
    Update(*state_->counters[i], labels(kCounters[i]), kCounters[i].figure(facts),
           series.counters[i]);
  }
}

}  // namespace quire
