// The series are there once TLS is on: an expiry of 0 would look like an expired certificate.
#include "server/metrics/tls_metrics.h"

#include "server/metrics/metric_registry.h"

namespace quire {

struct TlsMetrics::State {
  explicit State(MetricRegistry& r)
      : expiry(r.Gauges("quire_tls_certificate_expiry_timestamp_seconds",
                        "End of validity of the certificate in use, seconds since 1970.")),
        refused(r.Gauges("quire_tls_files_refused",
                         "1 while the TLS files hold what the server refuses to use.")),
        reloads(r.Counters("quire_tls_reloads_total", "Changes of the TLS files, by result.")),
        handshakes(r.Counters("quire_tls_handshakes_total", "TLS handshakes that began.")),
        failures(r.Counters("quire_tls_handshake_failures_total",
                            "TLS handshakes that failed, by reason.")) {}

  prometheus::Family<prometheus::Gauge>& expiry;
  prometheus::Family<prometheus::Gauge>& refused;
  prometheus::Family<prometheus::Counter>& reloads;
  prometheus::Family<prometheus::Counter>& handshakes;
  prometheus::Family<prometheus::Counter>& failures;
};

TlsMetrics::TlsMetrics(MetricRegistry& registry) : state_(std::make_unique<State>(registry)) {}

TlsMetrics::~TlsMetrics() = default;

void TlsMetrics::CertificateInUse(double not_after_seconds) {
  state_->expiry.Add({}).Set(not_after_seconds);
  state_->refused.Add({}).Set(0);
  // Present from the start, so that the first change is an increase.
  for (const char* result : {"taken", "refused"}) state_->reloads.Add({{"result", result}});
}

void TlsMetrics::Reloaded(bool taken) {
  state_->refused.Add({}).Set(taken ? 0 : 1);
  state_->reloads.Add({{"result", taken ? "taken" : "refused"}}).Increment();
}

void TlsMetrics::SetHandshakes(double begun,
                               const std::vector<std::pair<const char*, double>>& failed) {
  RaiseTo(state_->handshakes.Add({}), begun);
  for (const auto& [reason, total] : failed) {
    RaiseTo(state_->failures.Add({{"reason", reason}}), total);
  }
}

}  // namespace quire
