// quire.v1.Inference: Generate, GenerateUnary, GenerateBatch, Attach, Score, Embed, Tokenize,
// Detokenize.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"

namespace quire {

class KeptAnswers;

// `resources` and `kept` outlive the service.
std::unique_ptr<RawService> MakeInferenceService(const GenerateResources* resources,
                                                 KeptAnswers* kept);

}  // namespace quire
