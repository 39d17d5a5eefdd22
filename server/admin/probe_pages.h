// ProbePage: the pages of the admin port that orchestrators ask: /livez, /readyz, /health and
// /startupz.
#pragma once

#include <string_view>

#include "server/admin/admin_http.h"

namespace quire {

struct ProbeFacts {
  bool ready = false;       // has been since the start ended
  bool healthy = true;      // the engine makes progress or is idle
  bool recovering = false;  // the workers died and are being replaced
  bool draining = false;
  const char* state = "";  // the server's, in a word: the reason of a page that says no
};

// 200, or 503 with the reason. 404 for another path, with the pages that there are.
AdminPage ProbePage(std::string_view path, const ProbeFacts& facts);

}  // namespace quire
