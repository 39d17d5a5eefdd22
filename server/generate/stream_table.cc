// One lock for all: taken a few times in a call's life, never per token.
#include "server/generate/stream_table.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "server/call/status_codec.h"
#include "server/generate/generation_stream.h"

namespace quire {

TenantFilter MayEnd(const Caller& caller) {
  return caller.scopes.Has(Scope::kAdmin) ? TenantFilter() : TenantFilter(caller.tenant);
}

std::string MakeRequestId(uint64_t key, RequestId id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "q";
  for (int shift = 28; shift >= 0; shift -= 4) name += kDigits[(key >> shift) & 15];
  return name + "-" + std::to_string(id);
}

StreamTable::StreamTable(int max_open) : quota_(max_open, kReserved) {}

absl::Status StreamTable::Enter(TenantId tenant) {
  if (quota_.Enter(tenant)) return absl::OkStatus();
  return Refusal(absl::StatusCode::kUnavailable, "TOO_MANY_STREAMS",
                 "the server has " + std::to_string(quota_.max_open()) +
                     " open calls, which is its limit; retry when some have ended",
                 1);
}

void StreamTable::Leave(TenantId tenant) {
  quota_.Leave(tenant);
  if (open() > 0) return;
  std::lock_guard lock(mutex_);
  empty_.notify_all();
}

bool StreamTable::WaitEmpty(double seconds) {
  std::unique_lock lock(mutex_);
  return empty_.wait_for(lock, std::chrono::duration<double>(seconds),
                         [this] { return open() == 0; });
}

absl::Status StreamTable::Claim(const std::string& request_id,
                                std::shared_ptr<GenerationStream> stream) {
  const int64_t now_ns = SteadyNowNs();
  std::lock_guard lock(mutex_);
  if (early_aborts_.Take(stream->tenant(), request_id, now_ns)) return absl::CancelledError("");
  if (!IsLive(request_id, stream->tenant())) {
    by_id_.emplace(request_id, std::move(stream));
    return absl::OkStatus();
  }
  return Refusal(absl::StatusCode::kAlreadyExists, "REQUEST_ID_LIVE",
                 "request_id: a live request has this id; choose another or wait for its end");
}

bool StreamTable::IsLive(const std::string& request_id, TenantId tenant) const {
  const auto [begin, end] = by_id_.equal_range(request_id);
  return std::any_of(begin, end,
                     [&](const auto& entry) { return entry.second->tenant() == tenant; });
}

void StreamTable::Join(const std::string& request_id, std::shared_ptr<GenerationStream> stream) {
  std::lock_guard lock(mutex_);
  by_id_.emplace(request_id, std::move(stream));
}

void StreamTable::Release(const std::string& request_id, const GenerationStream& stream) {
  std::shared_ptr<GenerationStream> last;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  const auto [begin, end] = by_id_.equal_range(request_id);
  const auto found = std::find_if(
      begin, end, [&stream](const auto& entry) { return entry.second.get() == &stream; });
  if (found == end) return;
  last = std::move(found->second);
  by_id_.erase(found);
  early_aborts_.Ended(last->tenant(), request_id, SteadyNowNs());
}

std::vector<std::shared_ptr<GenerationStream>> StreamTable::Find(
    const std::vector<std::string>& request_ids, TenantFilter whose) {
  std::lock_guard lock(mutex_);
  return FindLocked(request_ids, whose);
}

std::vector<std::shared_ptr<GenerationStream>> StreamTable::FindToAbort(
    const std::vector<std::string>& request_ids, const Caller& caller, uint32_t* remembered) {
  const int64_t now_ns = SteadyNowNs();
  std::lock_guard lock(mutex_);
  // With the search under one lock: a request that comes meanwhile is found, or finds its id.
  for (const std::string& id : request_ids) {
    if (IsLive(id, caller.tenant)) continue;
    *remembered += early_aborts_.Remember(caller.tenant, id, now_ns) ? 1 : 0;
  }
  return FindLocked(request_ids, MayEnd(caller));
}

std::vector<std::shared_ptr<GenerationStream>> StreamTable::FindLocked(
    const std::vector<std::string>& request_ids, TenantFilter whose) const {
  std::vector<std::shared_ptr<GenerationStream>> found;
  for (const std::string& id : request_ids) {
    const auto [begin, end] = by_id_.equal_range(id);
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second->tenant() == whose.value_or(entry->second->tenant())) {
        found.push_back(entry->second);
      }
    }
  }
  return found;
}

std::vector<std::shared_ptr<GenerationStream>> StreamTable::All(TenantFilter whose) {
  std::vector<std::shared_ptr<GenerationStream>> all;
  std::lock_guard lock(mutex_);
  all.reserve(by_id_.size());
  for (const auto& [id, stream] : by_id_) {
    if (stream->tenant() == whose.value_or(stream->tenant())) all.push_back(stream);
  }
  return all;
}

}  // namespace quire
