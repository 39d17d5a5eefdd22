// CertificateStore: the certificates that new connections get, taken from files that may change. A
// change that could not be served with is refused, and the certificates in use stay.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/tls/certificate_check.h"

namespace quire {

class CertificateStore {
 public:
  // How a look at the files ended.
  enum class Outcome : uint8_t {
    kUnchanged,  // as at the last look that had news
    kTaken,      // new certificates are in use, or a refused file is again as in use
    kUnsettled,  // bad, and different from the last look: perhaps half written
    kRefused     // bad for two looks in a row; said once for each content
  };
  struct Look {
    Outcome outcome = Outcome::kUnchanged;
    std::string reason;  // of kRefused: file, fault and way out
  };

  // Reads and checks the files at `now`; the error names the file, the fault and the way out.
  static absl::StatusOr<std::unique_ptr<CertificateStore>> Open(const TlsFiles& files, time_t now);

  // Reads the files again, and takes them if they changed and are good. They are compared by
  // content, so it does not matter how they are replaced. One thread.
  Look LookAgain(time_t now);

  const TlsFiles& files() const { return files_; }
  // The certificates in use, once each time that they have changed; nullopt: the last call had
  // them. For the one server that uses the store; any thread.
  std::optional<CertificateTexts> TakeNew();
  // Of the certificates in use. Any thread.
  CertificateFacts facts() const;

 private:
  CertificateStore(const TlsFiles& files, CertificateTexts texts, CertificateFacts facts);

  // A bad state of the files: with their contents, or with why they cannot be read.
  Look Refuse(const std::string& state, const absl::Status& status);

  const TlsFiles files_;
  // Of LookAgain's thread: the bad state that the last look saw, and whether it was said.
  std::string bad_state_;
  bool said_ = false;
  mutable std::mutex mutex_;  // guards the rest
  bool new_ = true;           // TakeNew has not returned them
  CertificateTexts texts_;
  CertificateFacts facts_;
};

}  // namespace quire
