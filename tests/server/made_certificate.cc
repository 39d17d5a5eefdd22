// Small keys on the curve P-256: making one takes less than a millisecond.
#include "tests/server/made_certificate.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <fstream>

#include "kernels/check.h"

namespace quire {
namespace {

void Extend(X509* certificate, const MadeCertificate* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer == nullptr ? certificate : issuer->certificate.get(), certificate,
                 nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

template <typename Write>
std::string PemText(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  CHECK(write(bio) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

}  // namespace

MadeCertificate MakeCertificate(const CertificateWishes& wishes, const MadeCertificate* issuer) {
  static long serial = 0;
  MadeCertificate made;
  made.key.reset(wishes.rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(wishes.rsa_bits))
                                     : EVP_EC_gen("P-256"),
                 EVP_PKEY_free);
  made.certificate.reset(X509_new(), X509_free);
  X509* certificate = made.certificate.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), wishes.begins_in_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), wishes.ends_in_seconds);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(wishes.name.c_str()), -1, -1,
                             0);
  const X509* signer = issuer == nullptr ? certificate : issuer->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  if (wishes.authority) Extend(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
  if (!wishes.authority) Extend(certificate, issuer, NID_basic_constraints, "CA:FALSE");
  if (!wishes.authority) Extend(certificate, issuer, NID_subject_alt_name, wishes.names);
  if (!wishes.usage.empty()) Extend(certificate, issuer, NID_ext_key_usage, wishes.usage);
  EVP_PKEY* signing = issuer == nullptr ? made.key.get() : issuer->key.get();
  CHECK(X509_sign(certificate, signing, EVP_sha256()) > 0);
  made.pem = PemText([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
  made.key_pem = PemText([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, made.key.get(), nullptr, nullptr, 0, nullptr,
                                         nullptr);
  });
  return made;
}

std::string WriteTestFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "-" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace quire
