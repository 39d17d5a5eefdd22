// KeyDoor: the door of a server with keys. Its table may be replaced at any time; calls that were
// admitted before go on.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/identity/door.h"
#include "server/identity/key_table.h"

namespace quire {

class KeyDoor final : public Door {
 public:
  // Seconds of the Unix clock.
  using Clock = std::function<int64_t()>;

  // `served`: the names of the server's model.
  KeyDoor(KeyTable table, std::vector<std::string> served, Clock clock = {});

  Admission Admit(const CallFacts& facts, std::string_view method) const override;

  // Any thread.
  void Replace(KeyTable table);
  std::shared_ptr<const KeyTable> table() const;

 private:
  bool HasModelFor(const Caller& caller) const;

  const std::vector<std::string> served_;
  const Clock clock_;
  mutable std::mutex mutex_;
  std::shared_ptr<const KeyTable> table_;  // under mutex_
};

}  // namespace quire
