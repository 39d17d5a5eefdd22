// quire.v1.Inference: Generate, GenerateUnary, Tokenize, Detokenize.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// `host` outlives the service.
std::unique_ptr<RawService> MakeInferenceService(StreamHost* host);

}  // namespace quire
