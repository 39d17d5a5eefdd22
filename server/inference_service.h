// quire.v1.Inference: Generate, GenerateUnary, Tokenize, Detokenize.
#pragma once

#include <memory>

#include "server/raw_service.h"
#include "server/stream_host.h"

namespace quire {

// `host` outlives the service.
std::unique_ptr<RawService> MakeInferenceService(StreamHost* host);

}  // namespace quire
