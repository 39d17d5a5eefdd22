// OpenSSL parses what gRPC will parse again.
#include "clients/connect/client_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace quire::connect {
namespace {

struct Deleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

// An encrypted key fails instead of asking at the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

Owned<BIO> Bio(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> NextCertificate(BIO* bio) {
  return Owned<X509>(PEM_read_bio_X509(bio, nullptr, NoPassword, nullptr));
}

Owned<EVP_PKEY> Key(const std::string& text) {
  return Owned<EVP_PKEY>(PEM_read_bio_PrivateKey(Bio(text).get(), nullptr, NoPassword, nullptr));
}

}  // namespace

absl::Status CheckPem(const std::string& text, bool key) {
  ERR_clear_error();
  if (key) {
    const bool good = Key(text) != nullptr;
    ERR_clear_error();
    if (good) return absl::OkStatus();
    if (text.find("ENCRYPTED") != std::string::npos) {
      return absl::InvalidArgumentError(
          "the key is encrypted; decrypt it with openssl pkey, and protect the file by its mode");
    }
    return absl::InvalidArgumentError("holds no whole private key in PEM form");
  }
  const Owned<BIO> bio = Bio(text);
  int certificates = 0;
  while (NextCertificate(bio.get()) != nullptr) ++certificates;
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates > 0 && ended) return absl::OkStatus();
  if (certificates == 0 && ended) {
    return absl::InvalidArgumentError("holds no certificate in PEM form");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("certificate ", certificates + 1, " is cut off or damaged"));
}

bool IsKeyOf(const std::string& key, const std::string& certificate) {
  const Owned<X509> first = NextCertificate(Bio(certificate).get());
  const Owned<EVP_PKEY> parsed = Key(key);
  const bool same = first != nullptr && parsed != nullptr &&
                    X509_check_private_key(first.get(), parsed.get()) == 1;
  ERR_clear_error();
  return same;
}

}  // namespace quire::connect
