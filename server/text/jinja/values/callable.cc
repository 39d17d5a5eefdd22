// Reads the items of a loop as far as they are asked for.
#include "server/text/jinja/values/callable.h"

#include "engine/base/status_macros.h"

namespace quire::jinja {

absl::StatusOr<int64_t> ReadItems(Loop* loop, int64_t count) {
  while (loop->read_next != nullptr && static_cast<int64_t>(loop->items.size()) < count) {
    ASSIGN_OR_RETURN(const bool found, loop->read_next());
    if (!found) break;
  }
  return static_cast<int64_t>(loop->items.size());
}

}  // namespace quire::jinja
