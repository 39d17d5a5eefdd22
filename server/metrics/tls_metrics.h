// TlsMetrics: the metrics of the certificates in use and of handshakes. Part of ServerMetrics; uses
// its registry. Any thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace quire {

struct MetricRegistry;

class TlsMetrics {
 public:
  // `registry` outlives this.
  explicit TlsMetrics(MetricRegistry& registry);
  ~TlsMetrics();

  // TLS is on, with a certificate that ends then (seconds since 1970). Before the first call no
  // series of TLS is exported.
  void CertificateInUse(double not_after_seconds);
  // The files changed, and were taken or refused.
  void Reloaded(bool taken);
  // Sets the totals of handshakes; `failed` are pairs of a reason and its total. One thread at a
  // time.
  void SetHandshakes(double begun, const std::vector<std::pair<const char*, double>>& failed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
