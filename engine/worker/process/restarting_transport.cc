// Releasing a dead group and taking the next.
#include "engine/worker/process/restarting_transport.h"

#include <utility>

#include "kernels/check.h"

namespace quire {

RestartingTransport::RestartingTransport(std::unique_ptr<WorkerGroups> groups)
    : groups_(std::move(groups)), current_(groups_->Take()) {
  CHECK(current_ != nullptr);
}

RestartingTransport::~RestartingTransport() = default;

std::string RestartingTransport::fault() const {
  if (current_ == nullptr) return groups_->End();
  std::string own = current_->fault();
  return own.empty() ? groups_->Fault() : own;
}

bool RestartingTransport::Recover() {
  if (current_ != nullptr) {
    if (const std::string own = current_->fault(); !own.empty()) groups_->Condemn(own);
    past_mismatches_ += current_->rank_mismatches();
    current_.reset();
  }
  return groups_->End().empty();
}

bool RestartingTransport::recovering() {
  if (current_ == nullptr) current_ = groups_->Take();
  return current_ == nullptr && groups_->End().empty();
}

}  // namespace quire
