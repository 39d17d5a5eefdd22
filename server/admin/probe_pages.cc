// Each page is one question about the server.
#include "server/admin/probe_pages.h"

#include <string>

namespace quire {
namespace {

AdminPage Verdict(bool good, const char* reason_if_not) {
  if (good) return {.body = "ok\n"};
  return {.status = 503, .body = std::string(reason_if_not) + "\n"};
}

}  // namespace

AdminPage ProbePage(std::string_view path, const ProbeFacts& facts) {
  const bool works = facts.ready && facts.healthy && !facts.recovering;
  // Restarting the process would not replace the workers sooner.
  if (path == "/livez") return Verdict(facts.healthy || facts.recovering, "hung");
  if (path == "/readyz") return Verdict(works && !facts.draining, facts.state);
  // Whether requests make progress, as vLLM's page of this name: also while draining.
  if (path == "/health") {
    return Verdict(works, !facts.ready ? "loading" : facts.recovering ? "recovering" : "hung");
  }
  if (path == "/startupz") return Verdict(facts.ready, "loading");
  return {.status = 404,
          .body =
              "try /metrics, /health, /livez, /readyz, /startupz, /version, /status.json, "
              "/history.json or /\n"};
}

}  // namespace quire
