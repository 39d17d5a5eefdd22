// MakeCertificate: certificates for tests, with any fault in them.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <string>

namespace quire {

struct MadeCertificate {
  std::shared_ptr<X509> certificate;
  std::shared_ptr<EVP_PKEY> key;
  std::string pem, key_pem;
};

struct CertificateWishes {
  std::string name;                                  // its common name
  std::string names = "DNS:localhost,IP:127.0.0.1";  // as OpenSSL's subjectAltName takes them
  std::string usage;                                 // extendedKeyUsage; empty: none
  int64_t begins_in_seconds = -3600;
  int64_t ends_in_seconds = 86400;
  bool authority = false;
  int rsa_bits = 0;  // 0: an EC key
};

// Signed by `issuer`; by itself without one.
MadeCertificate MakeCertificate(const CertificateWishes& wishes,
                                const MadeCertificate* issuer = nullptr);

// Writes a file into a folder of this process and returns its path.
std::string WriteTestFile(const std::string& name, const std::string& text);

}  // namespace quire
