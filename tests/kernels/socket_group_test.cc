// Ranks that exchange bytes over TCP: no message is too long, and a lost rank is named.
#include "kernels/cpu/socket_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <thread>

#include "tests/kernels/thread_exchange.h"

namespace quire {
namespace {

using testing::HasSubstr;

using Fn = std::function<void(std::unique_ptr<cpu::RankGroup>, const std::string& why)>;

// Joins a rank for each host and runs fn on its thread.
void Join(const std::vector<std::string>& hosts, const Fn& fn) {
  const auto ranks = static_cast<int32_t>(hosts.size());
  ThreadExchange::Table table(ranks);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      ThreadExchange exchange(table, r);
      std::string why;
      auto group = cpu::JoinSockets(
          {.rank = r, .ranks = ranks, .one_host = false, .host = hosts[r], .exchange = &exchange},
          &why);
      fn(std::move(group), why);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SocketGroupTest, TheLongestMessagesPassBothWaysAtOnce) {
  Join({"127.0.0.1", "127.0.0.2", "127.0.0.3"}, [](auto group, const std::string& why) {
    ASSERT_NE(group, nullptr) << why;
    for (int round = 0; round < 20; ++round) {
      constexpr size_t kBytes = cpu::RankGroup::kMaxBytes;
      std::memset(group->Mine(), 10 * round + group->rank(), kBytes);
      const auto given = group->Exchange(kBytes);
      for (int32_t r = 0; r < 3; ++r) {
        const auto expected = static_cast<std::byte>(10 * round + r);
        EXPECT_EQ(given[r][0], expected);
        EXPECT_EQ(given[r][kBytes - 1], expected);
      }
    }
  });
}

TEST(SocketGroupTest, GivenBytesStayUntilTheNextExchange) {
  Join({"127.0.0.1", "127.0.0.1"}, [](auto group, const std::string& why) {
    ASSERT_NE(group, nullptr) << why;
    std::memset(group->Mine(), 1 + group->rank(), 8);
    const auto given = group->Exchange(8);
    std::memset(group->Mine(), 9, 8);
    EXPECT_EQ(given[0][7], std::byte{1});
    EXPECT_EQ(given[1][7], std::byte{2});
  });
}

TEST(SocketGroupTest, ARankThatIsGoneIsNamed) {
  Join({"127.0.0.1", "127.0.0.2"}, [](auto group, const std::string& why) {
    ASSERT_NE(group, nullptr) << why;
    if (group->rank() == 1) return;
    try {
      for (int round = 0; round < 100; ++round) group->Exchange(cpu::RankGroup::kMaxBytes);
      ADD_FAILURE() << "the rank was not missed";
    } catch (const ThreadExchange::LostRank& lost) {
      EXPECT_THAT(lost.what(), HasSubstr("rank 1 (127.0.0.2 port "));
    }
  });
}

TEST(SocketGroupTest, AHostWithoutSuchAnAddressIsNamed) {
  Join({"127.0.0.1", "192.0.2.1"}, [](auto group, const std::string& why) {
    EXPECT_EQ(group, nullptr);
    EXPECT_THAT(why, HasSubstr("rank 1: listening at '192.0.2.1'"));
  });
}

}  // namespace
}  // namespace quire
