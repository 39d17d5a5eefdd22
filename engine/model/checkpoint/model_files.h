// CheckWeightsFormat, RepositoryName: what the files and the name of a model's directory say before
// anything in it is read.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace quire {

// OK for a directory with safetensors, and for one without any weights. INVALID_ARGUMENT for
// pytorch_model.bin or GGUF alone, a GGUF file in place of a directory included: the message has
// the command that converts it.
absl::Status CheckWeightsFormat(const std::string& model);

// The name that people know the model by: of a snapshot in a cache of Hugging Face,
// ".../models--org--name/snapshots/<revision>", "org/name"; else the name of the directory. Links
// are followed where they exist.
std::string RepositoryName(const std::string& dir);

}  // namespace quire
