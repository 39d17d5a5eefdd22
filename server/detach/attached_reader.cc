// The end of a call whose peer does not read.
#include "server/detach/attached_reader.h"

#include <utility>

namespace quire {

void AttachedReader::TearDown(ConnectionTable& connections) {
  const std::lock_guard lock(mutex_);
  if (outlet_ == nullptr) return;
  // A reset waits for a write that the peer's full socket blocks. Such a connection is of no use to
  // its other streams either.
  if (std::exchange(reset_, true)) {
    connections.Cut(slot_, "its peer has stopped reading");
  } else {
    outlet_->Reset();
  }
}

void AttachedReader::Closed() {
  const std::lock_guard lock(mutex_);
  outlet_ = nullptr;
}

}  // namespace quire
