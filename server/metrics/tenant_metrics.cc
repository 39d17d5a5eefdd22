// Totals of the tenant "other" are sums of counters that may go away, so they only rise.
#include "server/metrics/tenant_metrics.h"

#include <array>
#include <map>

#include "server/metrics/metric_registry.h"

namespace quire {
namespace {

constexpr char kOther[] = "other";

void Add(const TenantStats& from, TenantStats* to) {
  to->running += from.running;
  to->queued += from.queued;
  to->queued_tokens += from.queued_tokens;
  to->prompt_tokens += from.prompt_tokens;
  to->generated_tokens += from.generated_tokens;
  to->host_pages += from.host_pages;
  for (size_t i = 0; i < kNumTenantLimits; ++i) to->refused[i] += from.refused[i];
}

}  // namespace

struct TenantMetrics::State {
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;

  explicit State(MetricRegistry& r)
      : running(r.Gauges("quire_tenant_requests_running", "Running requests by tenant.")),
        waiting(r.Gauges("quire_tenant_requests_waiting", "Waiting requests by tenant.")),
        waiting_tokens(
            r.Gauges("quire_tenant_waiting_tokens", "Tokens of waiting requests by tenant.")),
        host_pages(r.Gauges("quire_tenant_host_pages",
                            "Pages of host memory that hold KV of the tenant.")),
        prompt(r.Counters("quire_tenant_prompt_tokens_total", "Known tokens computed by tenant.")),
        generated(r.Counters("quire_tenant_generation_tokens_total", "Tokens sampled by tenant.")),
        refused(r.Counters("quire_tenant_refused_total",
                           "Requests refused by a limit of their tenant's own, by limit.")) {}

  struct Series {
    Gauge* running;
    Gauge* waiting;
    Gauge* waiting_tokens;
    Gauge* host_pages;
    Counter* prompt;
    Counter* generated;
    std::array<Counter*, kNumTenantLimits> refused;
  };

  Series& Of(const std::string& name) {
    const auto found = series.find(name);
    if (found != series.end()) return found->second;
    const prometheus::Labels labels{{"tenant", name}};
    Series made{&running.Add(labels),
                &waiting.Add(labels),
                &waiting_tokens.Add(labels),
                &host_pages.Add(labels),
                &prompt.Add(labels),
                &generated.Add(labels),
                {}};
    for (size_t i = 0; i < kNumTenantLimits; ++i) {
      made.refused[i] =
          &refused.Add({{"tenant", name}, {"limit", Name(static_cast<TenantLimit>(i))}});
    }
    return series.emplace(name, made).first->second;
  }

  void Set(const std::string& name, const TenantStats& stats) {
    Series& to = Of(name);
    to.running->Set(stats.running);
    to.waiting->Set(stats.queued);
    to.waiting_tokens->Set(static_cast<double>(stats.queued_tokens));
    to.host_pages->Set(static_cast<double>(stats.host_pages));
    RaiseTo(*to.prompt, static_cast<double>(stats.prompt_tokens));
    RaiseTo(*to.generated, static_cast<double>(stats.generated_tokens));
    for (size_t i = 0; i < kNumTenantLimits; ++i) {
      RaiseTo(*to.refused[i], static_cast<double>(stats.refused[i]));
    }
  }

  MetricRegistry::Family<Gauge>& running;
  MetricRegistry::Family<Gauge>& waiting;
  MetricRegistry::Family<Gauge>& waiting_tokens;
  MetricRegistry::Family<Gauge>& host_pages;
  MetricRegistry::Family<Counter>& prompt;
  MetricRegistry::Family<Counter>& generated;
  MetricRegistry::Family<Counter>& refused;
  std::map<std::string, Series> series;
};

TenantMetrics::TenantMetrics(MetricRegistry& registry)
    : state_(std::make_unique<State>(registry)) {}

TenantMetrics::~TenantMetrics() = default;

void TenantMetrics::Set(const std::vector<TenantStats>& tenants,
                        const std::vector<std::string>& names) {
  TenantStats other;
  bool others = false;
  for (size_t i = 0; i < tenants.size(); ++i) {
    const bool own = !names[i].empty() &&
                     (state_->series.contains(names[i]) || state_->series.size() < kMaxTenants);
    if (own) {
      state_->Set(names[i], tenants[i]);
    } else {
      others = true;
      Add(tenants[i], &other);
    }
  }
  if (others) state_->Set(kOther, other);
}

}  // namespace quire
