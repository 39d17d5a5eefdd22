// CheckCertificates: whether a server can serve with these PEM texts, and the facts they hold.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "absl/status/statusor.h"
#include "server/tls/tls_files.h"

namespace quire {

// The contents of the files; `client_ca` is empty without one. The key is a secret.
struct CertificateTexts {
  std::string certificate;
  std::string key;
  std::string client_ca;

  bool operator==(const CertificateTexts&) const = default;
};

// Facts of a server's certificate that are safe to log.
struct CertificateFacts {
  std::string subject;   // "CN=quire.example,O=Example"
  std::string names;     // for which it is valid: "quire.example, 127.0.0.1"
  time_t not_after = 0;  // end of validity, of the earliest to end of the chain
  int client_authorities = 0;
};

// Reads the files of `files`, which are on. NOT_FOUND or INVALID_ARGUMENT names the flag, the file,
// the reason and the way out.
absl::StatusOr<CertificateTexts> ReadCertificates(const TlsFiles& files);

// INVALID_ARGUMENT names the flag and the file of `files`, what is wrong there, and what to do: a
// text that is no PEM or is cut off, a key that is encrypted or belongs to another certificate,
// certificates out of order, not yet or no longer valid at `now`, not for servers, or too weak for
// OpenSSL's security level.
absl::StatusOr<CertificateFacts> CheckCertificates(const TlsFiles& files,
                                                   const CertificateTexts& texts, time_t now);

// Reads and checks the files, if TLS is on.
absl::Status CheckTlsFiles(const TlsFiles& files, time_t now);

// "2026-11-23 01:15:08 UTC".
std::string UtcText(time_t time);

}  // namespace quire
