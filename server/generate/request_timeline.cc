// One span for each stage that the request reached.
#include "server/generate/request_timeline.h"

#include <algorithm>

#include "engine/base/timeline.h"

namespace quire {

void DrawRequest(const std::string& request_id, const FinishEvent& event) {
  if (!Timeline::on()) return;
  const RequestTimings& at = event.timings;
  const auto draw = [&](const char* name, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns == 0) return;
    const int64_t last_ns = end_ns == 0 ? at.finished_ns : std::min(end_ns, at.finished_ns);
    Timeline::Add({.track = Timeline::Track::kRequests,
                   .name = name,
                   .begin_ns = begin_ns,
                   .end_ns = std::max(begin_ns, last_ns),
                   .args = {{{"prompt_tokens", event.usage.prompt_tokens},
                             {"cached_tokens", event.usage.cached_tokens},
                             {"completion_tokens", event.usage.completion_tokens},
                             {"preemptions", event.usage.preemptions}}},
                   .label = request_id});
  };
  draw("request", at.arrival_ns, at.finished_ns);
  draw("queue", at.arrival_ns, at.admitted_ns);
  // A restore that was given up has no end of its own: the request then waits in the queue.
  draw("restore", at.restore_asked_ns, at.restored_ns == 0 ? at.admitted_ns : at.restored_ns);
  draw("prefill", at.admitted_ns, at.first_token_ns);
  draw("decode", at.first_token_ns, at.last_token_ns);
}

}  // namespace quire
