// The reason in the system's words; the user by number, because a container may not know its name.
#include "engine/base/file_error.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status FileError(const std::string& path, int error) {
  const std::string reason = absl::StrCat(path, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(reason);
  if (error != EACCES) return absl::InvalidArgumentError(reason);
  return absl::InvalidArgumentError(
      absl::StrCat(reason, "; let user ", geteuid(),
                   ", as which this process runs, read the files and enter their folders (chmod -R "
                   "a+rX), or run the process as their owner"));
}

}  // namespace quire
