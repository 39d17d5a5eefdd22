// TlsFiles: the files by which the server proves who it is, and by which clients must, as settings.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// Whether the server asks for clients' certificates. A certificate that is sent is always verified.
enum class ClientCertificates : uint8_t { kNone, kOptional, kRequired };

struct TlsFiles {
  std::string certificate;  // PEM: the server's certificate, then its issuers; empty: plaintext
  std::string key;          // PEM; empty: in the file of the certificate
  std::string client_ca;    // PEM: authorities that sign clients' certificates; empty: none
  std::string clients = "auto";  // none, optional, required; auto: required with a client_ca

  bool on() const { return !certificate.empty(); }
  // Decides "auto".
  ClientCertificates RequiredOfClients() const {
    if (clients == "required") return ClientCertificates::kRequired;
    if (clients == "optional") return ClientCertificates::kOptional;
    const bool required = clients == "auto" && !client_ca.empty();
    return required ? ClientCertificates::kRequired : ClientCertificates::kNone;
  }
};

}  // namespace quire
