// Scope: the variables of one loop turn, macro call, inner block, or of the whole template.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text/jinja/values/value.h"

namespace quire::jinja {

struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> variables;

  // In this scope or around it; nullptr if there is none. The pointer lives until the next Set.
  const Value* Find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
      const auto at =
          std::ranges::find(scope->variables, name, &std::pair<std::string, Value>::first);
      if (at != scope->variables.end()) return &at->second;
    }
    return nullptr;
  }
  void Set(const std::string& name, Value value) {
    const auto at = std::ranges::find(variables, name, &std::pair<std::string, Value>::first);
    if (at != variables.end()) {
      at->second = std::move(value);
    } else {
      variables.emplace_back(name, std::move(value));
    }
  }
};

}  // namespace quire::jinja
