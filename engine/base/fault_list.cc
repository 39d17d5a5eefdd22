// Joins faults, and counts those beyond the most that are shown.
#include "engine/base/fault_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace quire {

void FaultList::Add(const absl::Status& status) {
  if (status.ok()) return;
  for (const auto& line : absl::StrSplit(std::string(status.message()), '\n')) {
    Add(status.code(), std::string(line));
  }
}

void FaultList::Add(absl::StatusCode code, std::string fault) {
  if (faults_.empty()) code_ = code;
  // Repeats come from readers of one object; looking for them stays cheap in a list of thousands.
  const auto shown = faults_.begin() + static_cast<long>(std::min(faults_.size(), kMostShown));
  if (std::find(faults_.begin(), shown, fault) == shown) faults_.push_back(std::move(fault));
}

absl::Status FaultList::status() const {
  if (faults_.empty()) return absl::OkStatus();
  const auto shown = static_cast<long>(std::min(faults_.size(), kMostShown));
  std::string text = absl::StrJoin(faults_.begin(), faults_.begin() + shown, "\n");
  if (faults_.size() > kMostShown) {
    absl::StrAppend(&text, "\nand ", faults_.size() - kMostShown, " more such faults");
  }
  return {code_, text};
}

absl::Status FaultList::Join(std::initializer_list<const FaultList*> lists) {
  absl::Status joined;
  for (const FaultList* list : lists) {
    const absl::Status status = list->status();
    if (status.ok()) continue;
    joined = joined.ok() ? status
                         : absl::Status(joined.code(),
                                        absl::StrCat(joined.message(), "\n", status.message()));
  }
  return joined;
}

}  // namespace quire
