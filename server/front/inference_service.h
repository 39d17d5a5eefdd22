// quire.v1.Inference: Generate, GenerateUnary, GenerateBatch, Score, Embed, Tokenize, Detokenize.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"

namespace quire {

// `resources` outlive the service.
std::unique_ptr<RawService> MakeInferenceService(const GenerateResources* resources);

}  // namespace quire
