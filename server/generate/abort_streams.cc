// The line has only ids of requests that were found: these passed the checks of a request id.
#include "server/generate/abort_streams.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/call/log_rate_limiter.h"
#include "server/call/status_codec.h"
#include "server/generate/generation_stream.h"

namespace quire {
namespace {

// Ids in the log line; the counts are complete.
constexpr size_t kLoggedIds = 16;

}  // namespace

absl::StatusOr<std::vector<std::string>> IdsToAbort(
    const google::protobuf::RepeatedPtrField<std::string>& ids, int most) {
  if (ids.size() > most) {
    return InvalidField("request_ids",
                        absl::StrCat("has more than ", most, " ids; use several calls"));
  }
  std::vector<std::string> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return distinct;
}

void AbortStreams(const AbortedBy& by,
                  const std::vector<std::shared_ptr<GenerationStream>>& streams) {
  for (const auto& stream : streams) stream->Abort();
  static LogRateLimiter limiter;
  int64_t calls = 1;
  if (streams.empty() && !by.caller.scopes.Has(Scope::kAdmin)) {
    calls = limiter.Count(SteadyNowNs());
    if (calls == 0) return;
  }
  std::vector<std::string> ids;
  for (size_t i = 0; i < std::min(streams.size(), kLoggedIds); ++i) {
    ids.push_back(streams[i]->request_id());
  }
  if (streams.size() > kLoggedIds) ids.emplace_back("...");
  Log(Severity::kInfo, "abort",
      {{"method", by.method},
       {"tenant", by.caller.tenant_name},
       {"key", by.caller.key_id},
       {"all", by.all},
       {"named", by.named},
       {"found", streams.size()},
       {"request_ids", absl::StrJoin(ids, ",")},
       {"calls", calls}});
}

}  // namespace quire
