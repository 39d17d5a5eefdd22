// AbortStreams: the end of Abort in every protocol: ends the requests that the call named, and logs
// whose call it was. IdsToAbort: its beginning, where a call names many.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/identity/caller.h"

namespace quire {

class GenerationStream;

// Each of the ids once, so that the search for them, which holds the table of streams, is as short
// as the limit says. Refused with INVALID_ARGUMENT: more than `most` ids.
absl::StatusOr<std::vector<std::string>> IdsToAbort(
    const google::protobuf::RepeatedPtrField<std::string>& ids, int most = 65536);

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
