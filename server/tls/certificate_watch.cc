// The clock of the machine decides about validity.
#include "server/tls/certificate_watch.h"

#include <ctime>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "server/tls/handshakes.h"

namespace quire {
namespace {

constexpr time_t kDay = 24 * 60 * 60;
constexpr time_t kSoon = 7 * kDay;

const char* Name(ClientCertificates clients) {
  if (clients == ClientCertificates::kRequired) return "required";
  return clients == ClientCertificates::kOptional ? "optional" : "none";
}

}  // namespace

CertificateWatch::CertificateWatch(CertificateStore* store, TlsMetrics* metrics)
    : store_(*store), metrics_(*metrics) {
  TellTaken("TLS certificate in use");
  TellHandshakes();
  thread_.emplace([this] {
    LookOnce();
    TellHandshakes();
  });
}

void CertificateWatch::LookOnce() {
  const time_t now = time(nullptr);
  const CertificateStore::Look look = store_.LookAgain(now);
  switch (look.outcome) {
    case CertificateStore::Outcome::kUnchanged:
    case CertificateStore::Outcome::kUnsettled: break;
    case CertificateStore::Outcome::kTaken:
      metrics_.Reloaded(/*taken=*/true);
      TellTaken("TLS certificate taken: new connections get it, open ones keep theirs");
      break;
    case CertificateStore::Outcome::kRefused:
      metrics_.Reloaded(/*taken=*/false);
      Log(Severity::kError, "TLS files refused: the certificate in use stays",
          {{"reason", look.reason}});
      break;
  }
  if (!told_expiry_ && now > store_.facts().not_after) {
    told_expiry_ = true;
    Log(Severity::kError, "the TLS certificate in use has expired: clients refuse it",
        {{"file", store_.files().certificate}});
  }
}

void CertificateWatch::TellHandshakes() {
  const Handshakes& handshakes = Handshakes::OfProcess();
  std::vector<std::pair<const char*, double>> failed;
  for (int i = 0; i < Handshakes::kNumFailures; ++i) {
    const auto failure = static_cast<Handshakes::Failure>(i);
    failed.emplace_back(Handshakes::Name(failure), static_cast<double>(handshakes.failed(failure)));
  }
  metrics_.SetHandshakes(static_cast<double>(handshakes.begun()), failed);
}

void CertificateWatch::TellTaken(const char* event) {
  const CertificateFacts facts = store_.facts();
  metrics_.CertificateInUse(static_cast<double>(facts.not_after));
  told_expiry_ = false;
  const time_t left = facts.not_after - time(nullptr);
  Log(left < kSoon ? Severity::kWarning : Severity::kInfo, event,
      {{"subject", facts.subject},
       {"names", facts.names},
       {"expires", UtcText(facts.not_after)},
       {"days_left", static_cast<long>(left / kDay)},
       {"client_certificates", Name(store_.files().RequiredOfClients())},
       {"client_authorities", facts.client_authorities}});
}

}  // namespace quire
