// OnForkedRanks: runs a function on each rank of a group, each rank in a process of its own, as in
// service.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/futex.h"
#include "kernels/rank_exchange.h"

namespace quire::testing {

// RankExchange between processes that share anonymous memory.
class ForkedExchange final : public RankExchange {
 public:
  static constexpr int kMostRanks = 8;
  static constexpr size_t kMostBytes = 4096;
  struct Board {
    std::atomic<uint32_t> arrived, round;
    size_t bytes[2][kMostRanks];
    char text[2][kMostRanks][kMostBytes];
  };
  static Board* MakeBoard() {
    void* board =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    return static_cast<Board*>(board);
  }

  ForkedExchange(Board* board, int rank, int ranks) : board_(board), rank_(rank), ranks_(ranks) {}
  std::vector<std::string> Share(const std::string& bytes) override {
    CHECK_LE(bytes.size(), kMostBytes);
    turn_ = 1 - turn_;
    board_->bytes[turn_][rank_] = bytes.size();
    std::memcpy(board_->text[turn_][rank_], bytes.data(), bytes.size());
    const uint32_t round = board_->round.load();
    if (board_->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(ranks_)) {
      board_->arrived = 0;
      ++board_->round;
      FutexWake(board_->round);
    } else {
      while (board_->round.load() == round) FutexWait(board_->round, round);
    }
    std::vector<std::string> all;
    for (int r = 0; r < ranks_; ++r) {
      all.emplace_back(board_->text[turn_][r], board_->bytes[turn_][r]);
    }
    return all;
  }
  void Lost(const std::string& why) override {
    std::fprintf(stderr, "rank %d has lost %s\n", rank_, why.c_str());
    _exit(1);
  }

 private:
  Board* const board_;
  const int rank_, ranks_;
  int turn_ = 0;
};

// Calls body(place) in each rank's process. True if every one returned true. If one dies or fails,
// the others are killed.
inline bool OnForkedRanks(int ranks, const std::function<bool(const RankPlace&)>& body) {
  std::fflush(nullptr);
  ForkedExchange::Board* const board = ForkedExchange::MakeBoard();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      ForkedExchange exchange(board, rank, ranks);
      const bool good = body({.rank = rank, .ranks = ranks, .exchange = &exchange});
      std::fflush(nullptr);
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  bool good = true;
  for (int left = ranks; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (!failed || !good) continue;
    good = false;
    for (const pid_t child : children) {
      if (child != ended) kill(child, SIGKILL);
    }
  }
  munmap(board, sizeof(ForkedExchange::Board));
  return good;
}

}  // namespace quire::testing
