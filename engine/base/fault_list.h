// FaultList: all that is wrong with a file, as one status of a sentence a line, so that one reading
// names every fault.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace quire {

class FaultList {
 public:
  // The most sentences that status() shows; a last line counts the others.
  static constexpr size_t kMostShown = 20;

  // Adds an INVALID_ARGUMENT. A sentence that is there already is not added again.
  void Add(std::string fault) { Add(absl::StatusCode::kInvalidArgument, std::move(fault)); }
  // Adds each line of an error; OK adds nothing.
  void Add(const absl::Status& status);

  bool empty() const { return faults_.empty(); }
  size_t size() const { return faults_.size(); }
  // OK, or the code of the first fault and the sentences in order, one a line.
  absl::Status status() const;
  // The lines of all lists, each of which shows its first sentences.
  static absl::Status Join(std::initializer_list<const FaultList*> lists);

 private:
  void Add(absl::StatusCode code, std::string fault);

  absl::StatusCode code_ = absl::StatusCode::kOk;
  std::vector<std::string> faults_;
};

}  // namespace quire
