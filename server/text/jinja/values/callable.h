// Callable: a function, method or macro that a template may call, or the object `loop`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/text/jinja/values/value.h"

namespace quire::jinja {

struct MacroStatement;
struct Scope;
struct Statement;

// The state of one for loop, which `loop` shows.
struct Loop {
  List items;  // those that passed the loop's condition so far
  // Appends the next item that passes, false if there is none; null when all are there. The
  // condition is computed when an item is asked for, as in jinja2: a turn may change the next one.
  std::function<absl::StatusOr<bool>()> read_next;
  int64_t index = 0;
  int depth = 1;                           // of recursive loops
  const Statement* recursive = nullptr;    // the loop that calling `loop` runs again
  std::weak_ptr<Scope> scope;              // around the loop
  std::shared_ptr<const Value> last_seen;  // by loop.changed
};

// Reads items until there are `count`, or all of them; the number that is there then.
absl::StatusOr<int64_t> ReadItems(Loop* loop, int64_t count);

// One of: a function of the environment (name), a method of an object (name, object), a macro, or
// a loop.
struct Callable {
  std::string name;
  Value object;                           // of a method
  int depth = 0;                          // of what it holds: the object, or the loop's items
  const MacroStatement* macro = nullptr;  // lives as long as the template
  std::weak_ptr<Scope> scope;             // a macro's: where it was defined
  std::shared_ptr<Loop> loop;
};

}  // namespace quire::jinja
