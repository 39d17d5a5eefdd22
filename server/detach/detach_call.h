// The gRPC ends of requests that may outlive their calls: Generate with detach_seconds, and Attach.
#pragma once

#include "server/call/raw_service.h"
#include "server/detach/kept_answers.h"
#include "server/generate/generate_resources.h"

namespace quire {

// Takes Generate calls with detach_seconds, and leaves all others to `plain`. `resources` and
// `kept` outlive every call.
RawService::ServerStreaming DetachableGenerate(const GenerateResources* resources,
                                               KeptAnswers* kept,
                                               RawService::ServerStreaming plain);
RawService::ServerStreaming AttachCall(const GenerateResources* resources, KeptAnswers* kept);

}  // namespace quire
