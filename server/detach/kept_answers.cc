// Answers are dropped without this lock: they take it again to leave.
#include "server/detach/kept_answers.h"

#include <utility>
#include <vector>

#include "server/call/status_codec.h"
#include "server/detach/kept_answer.h"

namespace quire {

KeptAnswers::KeptAnswers(int64_t max_bytes, MetricRegistry& metrics)
    : max_bytes_(max_bytes), metrics_(metrics) {}

KeptAnswers::~KeptAnswers() { DropAll(); }

std::string KeptAnswers::Key(TenantId tenant, const std::string& request_id) {
  return std::to_string(tenant) + ":" + request_id;
}

bool KeptAnswers::WithinPart(int64_t bytes, size_t tenants) const {
  return bytes < max_bytes_ / static_cast<int64_t>(tenants);
}

absl::Status KeptAnswers::CheckRoom(TenantId tenant) {
  std::vector<std::shared_ptr<KeptAnswer>> read;
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    int64_t freed = 0;
    for (const auto& [number, answer] : settled_) {
      if (bytes_ - freed < max_bytes_) break;
      freed += kAnswerBytes;  // at least
      read.push_back(answer);
    }
    const auto mine = bytes_of_.find(tenant);
    const int64_t bytes = mine == bytes_of_.end() ? 0 : mine->second;
    const size_t tenants = bytes_of_.size() + (mine == bytes_of_.end() ? 1 : 0);
    room = bytes_ - freed < max_bytes_ ||
           (WithinPart(bytes, tenants) && bytes_ - freed < max_bytes_ + max_bytes_ / 4);
  }
  for (const auto& answer : read) answer->Forget();
  if (room) return absl::OkStatus();
  metrics_.Refused();
  return Refusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_DETACHED",
                 "detach_seconds: the server keeps as many answers for your tenant as it has room "
                 "for; attach to them, abort them, or send the request without detach_seconds",
                 1);
}

void KeptAnswers::Add(const std::shared_ptr<KeptAnswer>& answer) {
  std::shared_ptr<KeptAnswer> older;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = answers_[Key(answer->tenant(), answer->request_id())];
    settled_.erase(entry.settled);
    older = std::exchange(entry, {.answer = answer}).answer;
  }
  if (older != nullptr) older->Forget();
  Count(answer->tenant(), kAnswerBytes);
}

std::shared_ptr<KeptAnswer> KeptAnswers::Find(TenantId tenant, const std::string& request_id) {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(Key(tenant, request_id));
  return found == answers_.end() ? nullptr : found->second.answer;
}

void KeptAnswers::Remove(const KeptAnswer& answer) {
  std::shared_ptr<KeptAnswer> last;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(Key(answer.tenant(), answer.request_id()));
  if (found == answers_.end() || found->second.answer.get() != &answer) return;
  last = std::move(found->second.answer);
  settled_.erase(found->second.settled);
  answers_.erase(found);
}

void KeptAnswers::Settle(const KeptAnswer& answer, bool settled) {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(Key(answer.tenant(), answer.request_id()));
  if (found == answers_.end() || found->second.answer.get() != &answer) return;
  settled_.erase(found->second.settled);
  found->second.settled = settled ? ++num_settled_ : 0;
  if (settled) settled_.emplace(num_settled_, found->second.answer);
}

void KeptAnswers::Count(TenantId tenant, int64_t bytes) {
  int64_t all = 0;
  {
    const std::lock_guard lock(mutex_);
    all = bytes_ += bytes;
    const auto mine = bytes_of_.try_emplace(tenant, 0).first;
    mine->second += bytes;
    if (mine->second == 0) bytes_of_.erase(mine);
  }
  metrics_.Keeps(all);
}

bool KeptAnswers::Crowded(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  const auto mine = bytes_of_.find(tenant);
  return bytes_ > max_bytes_ && mine != bytes_of_.end() &&
         !WithinPart(mine->second, bytes_of_.size());
}

void KeptAnswers::DropAll() {
  std::vector<std::shared_ptr<KeptAnswer>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : answers_) all.push_back(entry.answer);
  }
  for (const auto& answer : all) answer->Forget();
}

}  // namespace quire
