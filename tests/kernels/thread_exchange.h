// ThreadExchange: a RankExchange between threads of a test. A lost rank is an exception.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/rank_exchange.h"

namespace quire {

class ThreadExchange final : public RankExchange {
 public:
  struct LostRank : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  // The bytes that the ranks of one group give; outlives them.
  struct Table {
    explicit Table(int32_t ranks) : given(static_cast<size_t>(ranks)) {}
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> given, taken;
    int32_t arrived = 0;
    int64_t round = 0;
  };

  ThreadExchange(Table& table, int32_t rank) : table_(table), rank_(rank) {}

  std::vector<std::string> Share(const std::string& bytes) override {
    std::unique_lock lock(table_.mutex);
    table_.given[rank_] = bytes;
    const int64_t round = table_.round;
    if (++table_.arrived == static_cast<int32_t>(table_.given.size())) {
      table_.taken = table_.given;
      table_.arrived = 0;
      ++table_.round;
      table_.changed.notify_all();
    }
    table_.changed.wait(lock, [&] { return table_.round != round; });
    return table_.taken;
  }
  void Lost(const std::string& why) override { throw LostRank(why); }

 private:
  Table& table_;
  const int32_t rank_;
};

}  // namespace quire
