// Judges by OpenSSL what gRPC would refuse with less to say, and what it would not refuse.
#include "server/tls/certificate_check.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

// A chain has a few kilobytes, a bundle of all public authorities 220 KB.
constexpr int64_t kMaxFileBytes = 4 << 20;

struct Deleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;
using Chain = std::vector<Owned<X509>>;

// A file of a setting, as messages name it: "--ssl-certfile server.pem".
struct Source {
  const char* flag;
  std::string path;

  absl::Status Fault(const std::string& reason) const {
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": ", reason));
  }
};

Source CertificateSource(const TlsFiles& files) { return {"--ssl-certfile", files.certificate}; }
Source ClientSource(const TlsFiles& files) { return {"--ssl-ca-certs", files.client_ca}; }
Source KeySource(const TlsFiles& files) {
  return files.key.empty() ? CertificateSource(files) : Source{"--ssl-keyfile", files.key};
}

absl::Status Unreadable(const Source& source, int error) {
  const std::string reason = absl::StrCat(source.flag, " ", source.path, ": ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(reason);
  if (error != EACCES) return absl::InvalidArgumentError(reason);
  return absl::InvalidArgumentError(absl::StrCat(reason, "; let user ", geteuid(),
                                                 ", as which this process runs, read the file"));
}

absl::StatusOr<std::string> ReadFile(const Source& source) {
  struct stat info {};
  if (stat(source.path.c_str(), &info) != 0) return Unreadable(source, errno);
  if (!S_ISREG(info.st_mode)) return source.Fault("not a file; name a PEM file");
  if (info.st_size > kMaxFileBytes) return source.Fault("larger than 4 MiB; name a PEM file");
  std::ifstream file(source.path, std::ios::binary);
  if (!file) return Unreadable(source, errno);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string LastReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "unknown reason" : reason;
}

// A password that no file has: an encrypted key fails instead of asking at the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

Owned<BIO> Bio(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

size_t Occurrences(const std::string& text, const char* word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// All certificates of a PEM text, in order; at least one.
absl::StatusOr<Chain> ParseChain(const Source& source, const std::string& text) {
  if (text.find('\0') != std::string::npos) return source.Fault("not PEM text");
  Chain chain;
  const Owned<BIO> bio = Bio(text);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    chain.emplace_back(next);
  }
  const size_t begun = Occurrences(text, "-----BEGIN CERTIFICATE-----") +
                       Occurrences(text, "-----BEGIN X509 CERTIFICATE-----") +
                       Occurrences(text, "-----BEGIN TRUSTED CERTIFICATE-----");
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = LastReason();
  ERR_clear_error();
  if (begun == 0) {
    return source.Fault(
        "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----); convert DER with openssl "
        "x509 -inform der");
  }
  if (!ended || chain.size() < begun) {
    return source.Fault(absl::StrCat("certificate ", chain.size() + 1, " of ", begun,
                                     " is cut off or damaged (", reason, "); write the file anew"));
  }
  return chain;
}

absl::StatusOr<Owned<EVP_PKEY>> ParseKey(const Source& source, const std::string& text) {
  const Owned<BIO> bio = Bio(text);
  ERR_clear_error();
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  const std::string reason = LastReason();
  ERR_clear_error();
  if (key != nullptr) return key;
  if (text.find("ENCRYPTED") != std::string::npos) {
    return source.Fault(
        "the key is encrypted, and a server has no one to ask for its password; decrypt it with "
        "openssl pkey, and protect the file by its mode (0400)");
  }
  if (text.find("PRIVATE KEY-----") == std::string::npos) {
    return source.Fault("holds no private key in PEM form; give the key by --ssl-keyfile FILE");
  }
  return source.Fault(
      absl::StrCat("the key is cut off or damaged (", reason, "); write the file anew"));
}

std::string NameText(const X509_NAME* name) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string IpText(const ASN1_OCTET_STRING* address) {
  char* text = nullptr;
  const int size = ASN1_STRING_length(address);
  const unsigned char* bytes = ASN1_STRING_get0_data(address);
  if (size == 4) return absl::StrCat(bytes[0], ".", bytes[1], ".", bytes[2], ".", bytes[3]);
  text = OPENSSL_buf2hexstr(bytes, size);
  const std::string hex = text == nullptr ? "" : text;
  OPENSSL_free(text);
  return hex;
}

// Names, addresses and URIs for which the certificate speaks.
std::string AlternativeNames(const X509* certificate) {
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string text;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    std::string one;
    if (name->type == GEN_DNS || name->type == GEN_URI) {
      const ASN1_IA5STRING* word = name->d.ia5;
      one.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(word)),
                 static_cast<size_t>(ASN1_STRING_length(word)));
    } else if (name->type == GEN_IPADD) {
      one = IpText(name->d.iPAddress);
    }
    if (!one.empty()) absl::StrAppend(&text, text.empty() ? "" : ", ", one);
  }
  return text;
}

time_t TimeOf(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return timegm(&parts);
}

std::string Ordinal(size_t index) { return absl::StrCat("certificate ", index + 1); }

absl::Status CheckValidity(const Source& source, const Chain& chain, time_t now) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const time_t begins = TimeOf(X509_get0_notBefore(chain[i].get()));
    const time_t ends = TimeOf(X509_get0_notAfter(chain[i].get()));
    if (now < begins) {
      return source.Fault(absl::StrCat(Ordinal(i), " is not valid before ", UtcText(begins),
                                       ", and it is ", UtcText(now),
                                       "; check this machine's clock, or use another certificate"));
    }
    if (now > ends) {
      return source.Fault(absl::StrCat(Ordinal(i), " expired at ", UtcText(ends), ", and it is ",
                                       UtcText(now), "; renew it"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOrder(const Source& source, const Chain& chain) {
  for (size_t i = 1; i < chain.size(); ++i) {
    if (X509_check_issued(chain[i].get(), chain[i - 1].get()) == X509_V_OK) continue;
    return source.Fault(absl::StrCat(
        Ordinal(i), " (", NameText(X509_get_subject_name(chain[i].get())), ") did not issue ",
        Ordinal(i - 1), " (", NameText(X509_get_subject_name(chain[i - 1].get())),
        "): put the server's own certificate first, then each issuer behind what it issued"));
  }
  return absl::OkStatus();
}

// The check that counts in the end: OpenSSL takes the certificates as gRPC will give them to it.
absl::Status CheckAcceptable(const TlsFiles& files, const Chain& chain, EVP_PKEY* key) {
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  ERR_clear_error();
  const auto refused = [](const Source& source) {
    const std::string reason = LastReason();
    ERR_clear_error();
    return source.Fault(absl::StrCat("OpenSSL refuses it: ", reason,
                                     "; make one with an EC P-256 or RSA 2048 key and SHA-256"));
  };
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1) {
    return refused(CertificateSource(files));
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1) {
      return refused(CertificateSource(files));
    }
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key) != 1) return refused(KeySource(files));
  return absl::OkStatus();
}

absl::Status CheckClientAuthorities(const Source& source, const Chain& authorities, time_t now) {
  time_t last_end = 0;
  for (size_t i = 0; i < authorities.size(); ++i) {
    if (X509_check_ca(authorities[i].get()) == 0) {
      return source.Fault(
          absl::StrCat(Ordinal(i), " (", NameText(X509_get_subject_name(authorities[i].get())),
                       ") may not sign others: name the authority that signs the clients' "
                       "certificates"));
    }
    last_end = std::max(last_end, TimeOf(X509_get0_notAfter(authorities[i].get())));
  }
  if (now <= last_end) return absl::OkStatus();
  return source.Fault(absl::StrCat("every authority in it has expired, the last at ",
                                   UtcText(last_end), "; renew it"));
}

}  // namespace

std::string UtcText(time_t time) {
  tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return std::string(text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts));
}

absl::StatusOr<CertificateTexts> ReadCertificates(const TlsFiles& files) {
  CertificateTexts texts;
  ASSIGN_OR_RETURN(texts.certificate, ReadFile(CertificateSource(files)));
  ASSIGN_OR_RETURN(texts.key, ReadFile(KeySource(files)));
  if (!files.client_ca.empty()) {
    ASSIGN_OR_RETURN(texts.client_ca, ReadFile(ClientSource(files)));
  }
  return texts;
}

absl::StatusOr<CertificateFacts> CheckCertificates(const TlsFiles& files,
                                                   const CertificateTexts& texts, time_t now) {
  const Source source = CertificateSource(files);
  ASSIGN_OR_RETURN(const Chain chain, ParseChain(source, texts.certificate));
  ASSIGN_OR_RETURN(const Owned<EVP_PKEY> key, ParseKey(KeySource(files), texts.key));
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    ERR_clear_error();
    return KeySource(files).Fault(absl::StrCat(
        "the key does not belong to the first certificate of ", files.certificate, " (",
        NameText(X509_get_subject_name(chain[0].get())),
        "): use the key that it was made with, and put the server's own certificate first"));
  }
  RETURN_IF_ERROR(CheckOrder(source, chain));
  RETURN_IF_ERROR(CheckValidity(source, chain, now));
  if (X509_check_purpose(chain[0].get(), X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return source.Fault(
        "its extended key usage does not allow a TLS server; use one made for serverAuth");
  }
  RETURN_IF_ERROR(CheckAcceptable(files, chain, key.get()));
  CertificateFacts facts{.subject = NameText(X509_get_subject_name(chain[0].get())),
                         .names = AlternativeNames(chain[0].get()),
                         .not_after = TimeOf(X509_get0_notAfter(chain[0].get()))};
  for (const Owned<X509>& one : chain) {
    facts.not_after = std::min(facts.not_after, TimeOf(X509_get0_notAfter(one.get())));
  }
  if (!files.client_ca.empty()) {
    ASSIGN_OR_RETURN(const Chain authorities, ParseChain(ClientSource(files), texts.client_ca));
    RETURN_IF_ERROR(CheckClientAuthorities(ClientSource(files), authorities, now));
    facts.client_authorities = static_cast<int>(authorities.size());
  }
  return facts;
}

absl::Status CheckTlsFiles(const TlsFiles& files, time_t now) {
  if (!files.on()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CertificateTexts texts, ReadCertificates(files));
  return CheckCertificates(files, texts, now).status();
}

}  // namespace quire
