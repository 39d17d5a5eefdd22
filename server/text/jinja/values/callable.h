// Callable: a function, method or macro that a template may call, or the object `loop`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/text/jinja/values/value.h"

namespace quire::jinja {

struct MacroStatement;
struct Scope;
struct Statement;

// The state of one for loop, which `loop` shows.
struct Loop {
  List items;
  int64_t index = 0;
  int depth = 1;                           // of recursive loops
  const Statement* recursive = nullptr;    // the loop that calling `loop` runs again
  std::weak_ptr<Scope> scope;              // around the loop
  std::shared_ptr<const Value> last_seen;  // by loop.changed
};

// One of: a function of the environment (name), a method of an object (name, object), a macro, or
// a loop.
struct Callable {
  std::string name;
  Value object;                           // of a method
  const MacroStatement* macro = nullptr;  // lives as long as the template
  std::weak_ptr<Scope> scope;             // a macro's: where it was defined
  std::shared_ptr<Loop> loop;
};

}  // namespace quire::jinja
