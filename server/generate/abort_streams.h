// AbortStreams: the end of Abort in every protocol: ends the requests that the call named, and logs
// whose call it was.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "server/identity/caller.h"

namespace quire {

class GenerationStream;

struct AbortedBy {
  const Caller& caller;
  const char* method;  // "quire.v1.Control/Abort"
  bool all = false;    // the call named no request
  size_t named = 0;    // ids in the call
};

// `streams`: the live requests among those that the call named. Each use is one line of the log,
// except that calls of ordinary keys that found nothing share one line a second. Any thread.
void AbortStreams(const AbortedBy& by,
                  const std::vector<std::shared_ptr<GenerationStream>>& streams);

}  // namespace quire
