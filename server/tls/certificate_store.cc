// Two equal looks make a fault: a writer that replaces two files has both written by then.
#include "server/tls/certificate_store.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace quire {

absl::StatusOr<std::unique_ptr<CertificateStore>> CertificateStore::Open(const TlsFiles& files,
                                                                         time_t now) {
  ASSIGN_OR_RETURN(CertificateTexts texts, ReadCertificates(files));
  ASSIGN_OR_RETURN(CertificateFacts facts, CheckCertificates(files, texts, now));
  return std::unique_ptr<CertificateStore>(
      new CertificateStore(files, std::move(texts), std::move(facts)));
}

CertificateStore::CertificateStore(const TlsFiles& files, CertificateTexts texts,
                                   CertificateFacts facts)
    : files_(files), texts_(std::move(texts)), facts_(std::move(facts)) {}

CertificateStore::Look CertificateStore::LookAgain(time_t now) {
  absl::StatusOr<CertificateTexts> read = ReadCertificates(files_);
  if (!read.ok()) return Refuse(std::string(read.status().message()), read.status());
  if (*read == texts_) {  // written by this thread alone
    const bool was_refused = std::exchange(said_, false);
    bad_state_.clear();
    return {.outcome = was_refused ? Outcome::kTaken : Outcome::kUnchanged};
  }
  absl::StatusOr<CertificateFacts> checked = CheckCertificates(files_, *read, now);
  if (!checked.ok()) {
    return Refuse(absl::StrCat(read->certificate, "\n", read->key, "\n", read->client_ca),
                  checked.status());
  }
  bad_state_.clear();
  said_ = false;
  const std::lock_guard lock(mutex_);
  texts_ = *std::move(read);
  facts_ = *std::move(checked);
  new_ = true;
  return {.outcome = Outcome::kTaken};
}

CertificateStore::Look CertificateStore::Refuse(const std::string& state,
                                                const absl::Status& status) {
  if (state != bad_state_) {
    bad_state_ = state;
    said_ = false;
    return {.outcome = Outcome::kUnsettled};
  }
  if (said_) return {};
  said_ = true;
  return {.outcome = Outcome::kRefused, .reason = std::string(status.message())};
}

std::optional<CertificateTexts> CertificateStore::TakeNew() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(new_, false)) return std::nullopt;
  return texts_;
}

CertificateFacts CertificateStore::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

}  // namespace quire
