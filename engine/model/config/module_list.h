// ModuleList: the modules that a quantized checkpoint names as exceptions. Immutable after the last
// Add; then any thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

class ModuleList {
 public:
  // Expressions that a list takes, a name that only ends with "*" not counted; published
  // checkpoints have a handful.
  static constexpr size_t kMostExpressions = 64;

  ModuleList();
  ~ModuleList();
  ModuleList(ModuleList&&) noexcept;
  ModuleList& operator=(ModuleList&&) noexcept;

  // An entry as checkpoints have it: the name of a module, which stands for the modules inside it
  // too; a name with "*" for any characters; or, after "re:", a regular expression that matches the
  // beginning of a name, as re.match of Python does. INVALID_ARGUMENT for an expression that PCRE2
  // does not read, and for one too many.
  absl::Status Add(const std::string& entry);
  // An entry that covers every module whose name contains it.
  void AddFragment(const std::string& entry) { fragments_.push_back(entry); }
  // An entry that covers every module whose name is it or ends with "." and it.
  void AddEnding(const std::string& entry) { endings_.push_back(entry); }
  // Whether an entry covers the module. INVALID_ARGUMENT if an expression needs too many steps.
  absl::StatusOr<bool> Covers(std::string_view module) const { return Covers(module, false); }
  // The same by a name that the module has in another program, but not by an expression that says
  // what a name is not: it would cover every module under one of its names.
  absl::StatusOr<bool> CoversAlias(std::string_view name) const { return Covers(name, true); }

 private:
  struct Expression;

  absl::StatusOr<bool> Covers(std::string_view module, bool alias) const;

  std::set<std::string, std::less<>> names_;
  std::vector<std::string> fragments_, endings_;
  std::vector<std::string> beginnings_;  // of entries that end with their only "*"
  std::vector<std::unique_ptr<const Expression>> expressions_;
};

}  // namespace quire
