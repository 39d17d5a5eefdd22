// A TLS handshake as gRPC would do it, with OpenSSL's own words for its end. gRPC's server sends no
// alert when it refuses a client: it closes, so the cause is inferred from what it had asked for.
#include "clients/connect/diagnosis.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "clients/connect/tcp_probe.h"

namespace quire::connect {
namespace {

constexpr std::chrono::milliseconds kLimit(4000);

struct Deleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

Owned<BIO> Bio(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> FirstCertificate(const std::string& text) {
  return Owned<X509>(PEM_read_bio_X509(Bio(text).get(), nullptr, nullptr, nullptr));
}

std::string NameText(const X509_NAME* name) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string Issuer(const X509* certificate) { return NameText(X509_get_issuer_name(certificate)); }
std::string Subject(const X509* certificate) {
  return NameText(X509_get_subject_name(certificate));
}

std::string TimeText(const ASN1_TIME* time) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// The DNS names and IPv4 addresses of a certificate.
std::string NamesOf(const X509* certificate) {
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string text;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    std::string one;
    if (name->type == GEN_DNS) {
      one.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                 static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
    } else if (name->type == GEN_IPADD && ASN1_STRING_length(name->d.iPAddress) == 4) {
      const unsigned char* bytes = ASN1_STRING_get0_data(name->d.iPAddress);
      one = absl::StrCat(bytes[0], ".", bytes[1], ".", bytes[2], ".", bytes[3]);
    }
    if (!one.empty()) absl::StrAppend(&text, text.empty() ? "" : ", ", one);
  }
  return text.empty() ? "no name" : text;
}

// The client's side of TLS, as gRPC sets it up.
Owned<SSL_CTX> MakeContext(const Endpoint& endpoint, bool verify) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  const unsigned char alpn[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), alpn, sizeof alpn);
  if (!verify) return context;
  // The mode stays SSL_VERIFY_NONE: the certificate is verified all the same, and a handshake that
  // goes on shows whose it is.
  if (endpoint.ca_cert.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else {
    const Owned<BIO> bio = Bio(endpoint.ca_cert);
    while (const Owned<X509> authority{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get());
    }
  }
  if (endpoint.client_cert.empty()) return context;
  const Owned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(Bio(endpoint.client_key).get(), nullptr, nullptr, nullptr));
  SSL_CTX_use_certificate(context.get(), FirstCertificate(endpoint.client_cert).get());
  SSL_CTX_use_PrivateKey(context.get(), key.get());
  return context;
}

// One handshake over one connection.
class Attempt {
 public:
  Attempt(const Endpoint& endpoint, const HostPort& address, bool verify)
      : endpoint_(endpoint),
        expected_(endpoint.server_name.empty() ? address.host : endpoint.server_name),
        probe_(address, kLimit),
        context_(MakeContext(endpoint, verify)),
        ssl_(SSL_new(context_.get())) {
    if (probe_.fd() < 0) return;
    SSL_set_fd(ssl_.get(), probe_.fd());
    X509_VERIFY_PARAM* rules = SSL_get0_param(ssl_.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, expected_.c_str()) != 1) {
      SSL_set_tlsext_host_name(ssl_.get(), expected_.c_str());
      if (verify) X509_VERIFY_PARAM_set1_host(rules, expected_.c_str(), 0);
    }
    ERR_clear_error();
    shook_hands_ = Repeat([this] { return SSL_connect(ssl_.get()); });
  }

  const std::string& failing() const { return probe_.failing(); }
  // The handshake ended well, and the server's certificate is trusted.
  bool good() const { return shook_hands_ && SSL_get_verify_result(ssl_.get()) == X509_V_OK; }
  bool speaks_tls() const { return shook_hands_; }
  std::string WhyNoHandshake() const;
  // After the handshake: the server's first bytes, or its refusal of this client.
  std::string WhyRefused();

 private:
  // Runs a step of OpenSSL until it is done; false when it failed or the time is over.
  template <typename Step>
  bool Repeat(Step step) {
    for (;;) {
      const int result = step();
      if (result > 0) return true;
      const int error = SSL_get_error(ssl_.get(), result);
      const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
      if (!waits) {
        reason_ = static_cast<int>(ERR_GET_REASON(ERR_peek_last_error()));
        return false;
      }
      if (!probe_.Wait(error == SSL_ERROR_WANT_WRITE)) {
        timed_out_ = true;
        return false;
      }
    }
  }
  std::string Untrusted(const X509* certificate, long verdict) const;
  std::string AcceptedAuthorities() const;

  const Endpoint& endpoint_;
  const std::string expected_;
  TcpProbe probe_;
  const Owned<SSL_CTX> context_;
  const Owned<SSL> ssl_;
  bool shook_hands_ = false;
  bool timed_out_ = false;
  int reason_ = 0;
};

std::string Attempt::Untrusted(const X509* certificate, long verdict) const {
  switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat("the server's certificate is valid for ", NamesOf(certificate),
                          ", not for ", expected_,
                          ": dial one of these names, or give it by --server-name");
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat("the server's certificate (", Subject(certificate), ") or its issuer's ",
                          "has expired (it ends ", TimeText(X509_get0_notAfter(certificate)),
                          "): it must be renewed on the server");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat("the server's certificate (", Subject(certificate),
                          ") is not valid before ", TimeText(X509_get0_notBefore(certificate)),
                          ": check the clocks of both machines");
    default: break;
  }
  const std::string authorities =
      endpoint_.ca_cert.empty() ? "this system's authorities" : endpoint_.ca_file;
  return absl::StrCat("the server's certificate (", Subject(certificate), ", issued by ",
                      Issuer(certificate), ") comes from none of ", authorities, " (",
                      X509_verify_cert_error_string(verdict),
                      "): give the file of its authority by --ca-cert");
}

std::string Attempt::WhyNoHandshake() const {
  const X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  const long verdict = SSL_get_verify_result(ssl_.get());
  if (certificate != nullptr && verdict != X509_V_OK) return Untrusted(certificate, verdict);
  if (timed_out_) return "the server takes connections and does not answer: is it a TLS port?";
  switch (reason_) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
      return "the server speaks plaintext there: dial its TLS port, or leave TLS out (--no-tls)";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return "the server has no version of TLS in common with this client, which needs 1.2 or 1.3";
    default: break;
  }
  const char* words = ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason_));
  return absl::StrCat("the TLS handshake failed: ",
                      words == nullptr ? "the server closed the connection" : words);
}

// "CN=a, CN=b": the authorities that the server named when it asked for a certificate.
std::string Attempt::AcceptedAuthorities() const {
  const STACK_OF(X509_NAME)* names = SSL_get0_peer_CA_list(ssl_.get());
  std::string text;
  for (int i = 0; names != nullptr && i < sk_X509_NAME_num(names); ++i) {
    absl::StrAppend(&text, text.empty() ? "" : " or ", NameText(sk_X509_NAME_value(names, i)));
  }
  return text;
}

std::string Attempt::WhyRefused() {
  char byte = 0;
  ERR_clear_error();
  if (Repeat([&] { return SSL_read(ssl_.get(), &byte, 1); }) || timed_out_) {
    const unsigned char* alpn = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &alpn, &size);
    if (size > 0) return "";
    return "the server speaks TLS but does not offer HTTP/2, which gRPC needs: is it a gRPC port?";
  }
  const std::string accepted = AcceptedAuthorities();
  const std::string from = accepted.empty() ? "" : absl::StrCat(", issued by ", accepted);
  if (endpoint_.client_cert.empty()) {
    if (accepted.empty() && reason_ != SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED) return "";
    return absl::StrCat("the server asks for a certificate of the client", from,
                        ": give --client-cert and --client-key");
  }
  const Owned<X509> own = FirstCertificate(endpoint_.client_cert);
  if (X509_cmp_current_time(X509_get0_notAfter(own.get())) < 0) {
    return absl::StrCat("the certificate of --client-cert expired at ",
                        TimeText(X509_get0_notAfter(own.get())), ": renew it");
  }
  return absl::StrCat("the server refuses the certificate of --client-cert (", Subject(own.get()),
                      ", issued by ", Issuer(own.get()), "): it takes those",
                      from.empty() ? " of other authorities" : from.substr(1));
}

}  // namespace

std::string WhyNoConnection(const Endpoint& endpoint) {
  const HostPort address = SplitAddress(endpoint.server);
  if (address.host.empty() || address.port.empty()) return "";
  Attempt attempt(endpoint, address, /*verify=*/endpoint.tls);
  if (!attempt.failing().empty()) return attempt.failing();
  if (endpoint.tls) {
    return attempt.good() ? attempt.WhyRefused() : attempt.WhyNoHandshake();
  }
  if (!attempt.speaks_tls()) return "";
  return "the server speaks TLS there: give --ca-cert FILE with the authority of its certificate, "
         "or --tls if this system knows it";
}

}  // namespace quire::connect
