// VllmStreams: the calls of VllmEngine that take time and generate nothing.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/session/session_resources.h"

namespace quire {

class SharedTokenizerBundle;

// Handlers for RawService; the reactors delete themselves. `resources` outlive every call.

// GetTokenizer: the tokenizer's files as a zip archive, in parts.
RawService::ServerStreaming GetTokenizerCall(SessionResources* resources,
                                             std::shared_ptr<SharedTokenizerBundle> bundle);
// SubscribeKvEvents: which blocks of the caller's tenant have KV, and each change, until the
// subscriber ends the call. OUT_OF_RANGE: it was too far behind.
RawService::ServerStreaming SubscribeKvEventsCall(SessionResources* resources);
// FlushCache: drops the KV of the caller's tenant that no sequence and no session holds, again and
// again until none is left or the request's time is up. `success`: none is left.
RawService::Unary FlushCacheCall(SessionResources* resources);

}  // namespace quire
