// FileError: why a file of the model cannot be read, with the way out.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace quire {

// NOT_FOUND if `error`, an errno value, says that the path does not exist; else INVALID_ARGUMENT.
// The message names the path, the reason and, when the permission is missing, the user that needs
// it: in a container that is not the user who wrote the file.
absl::Status FileError(const std::string& path, int error);

}  // namespace quire
