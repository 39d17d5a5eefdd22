// CertificateWatch: looks at the files of a store once a second, on a thread of its own, and tells
// log and metrics of each change.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/metrics/tls_metrics.h"
#include "server/tls/certificate_store.h"

namespace quire {

class CertificateWatch {
 public:
  // Both outlive the watch, which looks until it is destroyed.
  CertificateWatch(CertificateStore* store, TlsMetrics* metrics);
  ~CertificateWatch();

 private:
  void Run();
  void LookOnce();
  void TellTaken(const char* event);
  void TellHandshakes();

  CertificateStore& store_;
  TlsMetrics& metrics_;
  bool told_expiry_ = false;  // the thread's: the certificate in use has expired, and it was said
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;     // last, because it uses the members above
};

}  // namespace quire
