// CertificateWatch: looks at the files of a store once a second, on a thread of its own, and tells
// log and metrics of each change.
#pragma once

#include <optional>

#include "server/metrics/tls_metrics.h"
#include "server/tls/certificate_store.h"
#include "server/watch/watch_thread.h"

namespace quire {

class CertificateWatch {
 public:
  // Both outlive the watch, which looks until it is destroyed.
  CertificateWatch(CertificateStore* store, TlsMetrics* metrics);

 private:
  void LookOnce();
  void TellTaken(const char* event);
  void TellHandshakes();

  CertificateStore& store_;
  TlsMetrics& metrics_;
  bool told_expiry_ = false;  // the thread's: the certificate in use has expired, and it was said
  std::optional<WatchThread> thread_;  // set when the constructor has told the beginning
};

}  // namespace quire
