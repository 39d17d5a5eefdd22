// The queue in front of the session directory's journals while a disk hangs: it stays small, and it
// says of each session what its journal lacks.
#include "server/session/archive/change_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace quire {
namespace {

using Event = ChangeQueue::Event;
using Kind = Event::Kind;

SessionInfo Info(const SessionName& name, int64_t used_ns,
                 SessionState state = SessionState::kResidentIdle) {
  return {.name = name, .tenant = 7, .state = state, .used_ns = used_ns};
}

class ChangeQueueTest : public ::testing::Test {
 protected:
  void Change(const SessionName& name, int64_t used_ns) {
    queue_.Push({.info = Info(name, used_ns)});
  }
  void Close(const SessionName& name) {
    queue_.Push({.info = Info(name, 0, SessionState::kClosed)});
  }
  void Tokens(const SessionName& name, int32_t kept, size_t added = 1) {
    queue_.Push({.kind = Kind::kTokens,
                 .info = Info(name, 5),
                 .kept = kept,
                 .tokens = std::vector<int32_t>(added)});
  }
  void TurnEnd(const SessionName& name) {
    queue_.Push({.kind = Kind::kTurnEnd, .info = Info(name, 0)});
  }
  void Fill() {
    while (queue_.size() < ChangeQueue::kMaxEvents) TurnEnd("full");
  }
  // The session's events, ends of turns aside.
  std::vector<Event> Take(const SessionName& name) {
    std::vector<Event> batch, own;
    queue_.Take(&batch);
    for (Event& event : batch) {
      if (event.info.name == name && event.kind != Kind::kTurnEnd) own.push_back(std::move(event));
    }
    return own;
  }

  ChangeQueue queue_;
};

TEST_F(ChangeQueueTest, ASessionsChangesBecomeOne) {
  for (int i = 1; i <= 1000; ++i) {
    Change("a", i);
    Change("b", i);
    if (i == 500) TurnEnd("a");
  }
  EXPECT_EQ(queue_.size(), 3u);
  const std::vector<Event> own = Take("a");
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].info.used_ns, 1000);
  EXPECT_TRUE(queue_.empty());
  Change("a", 1);
  EXPECT_EQ(queue_.size(), 1u);
}

TEST_F(ChangeQueueTest, ChangesStayBehindTokensAndEnds) {
  Change("a", 1);
  Tokens("a", 0);
  Change("a", 2);
  Close("a");
  Change("a", 3);
  const std::vector<Event> own = Take("a");
  ASSERT_EQ(own.size(), 4u);
  EXPECT_EQ(own[1].kind, Kind::kTokens);
  EXPECT_FALSE(own[1].incomplete);
  EXPECT_EQ(own[2].info.state, SessionState::kClosed);
  EXPECT_EQ(own[3].info.used_ns, 3);
}

TEST_F(ChangeQueueTest, BeyondItsBoundASessionIsIncomplete) {
  Tokens("a", 40);
  Tokens("ended", 0);
  Fill();
  for (int i = 0; i < 1000; ++i) {
    Tokens("a", 50 - i % 30);
    Change("a", i);
    Tokens("new", 0, 0);
    TurnEnd("a");
  }
  Close("ended");
  EXPECT_EQ(queue_.size(), ChangeQueue::kMaxEvents + 2);
  const std::vector<Event> own = Take("a");
  ASSERT_EQ(own.size(), 1u);
  EXPECT_TRUE(own[0].incomplete);
  EXPECT_TRUE(own[0].tokens.empty());
  EXPECT_EQ(own[0].kept, 21) << "the KV of a file is the session's no further";
  EXPECT_EQ(own[0].info.used_ns, 999);
}

TEST_F(ChangeQueueTest, ASessionThatEndsAndBeginsInAFullQueueKeepsThatOrder) {
  Fill();
  Close("a");
  Change("a", 1);
  Change("a", 2);
  const std::vector<Event> own = Take("a");
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].info.state, SessionState::kClosed);
  EXPECT_TRUE(own[1].incomplete);
  EXPECT_EQ(own[1].info.used_ns, 2);
}

TEST_F(ChangeQueueTest, TokensAreBoundedByTheirBytes) {
  const size_t half = ChangeQueue::kMaxBytes / sizeof(int32_t) / 2;
  Tokens("a", 0, half);
  Tokens("b", 0, half);
  Tokens("b", 9);
  EXPECT_EQ(queue_.size(), 2u);
  Tokens("c", 0);
  const std::vector<Event> own = Take("c");
  ASSERT_EQ(own.size(), 1u);
  EXPECT_FALSE(own[0].incomplete) << "the tokens that b has given up make room";
}

}  // namespace
}  // namespace quire
