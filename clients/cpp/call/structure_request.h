// SetStructure: the flags of a structure as quire.v1.StructuredOutput.
#pragma once

#include "absl/status/status.h"
#include "clients/cpp/flags/structure_flags.h"
#include "quire/v1/inference.pb.h"

namespace quire::cli {

// Reads the files. INVALID_ARGUMENT names a flag whose file cannot be read, or two flags that
// exclude each other. Leaves the field unset when no flag is given.
absl::Status SetStructure(const StructureFlags& flags, v1::GenerateRequest* request);

}  // namespace quire::cli
