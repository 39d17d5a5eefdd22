// The memory of an idle session, measured by an operator new that counts.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/schedule/sessions/session_store.h"
#include "tests/allocations.h"

namespace quire {
namespace {

constexpr int32_t kSessions = 1000;
constexpr int32_t kTokens = 500;

// The session is in every order of the book: it has a lease, an offload, pages, a node.
TEST(SessionMemoryTest, AnIdleSessionTakesAtMostTheDocumentedMemory) {
  BlockPool pool(kSessions + 1);
  PrefixTree tree(pool, 16, kSessions);
  tree.Find(1, {});
  const SessionConfig config{.max_sessions = kSessions,
                             .max_sessions_per_tenant = kSessions,
                             .max_session_tokens = 1 << 30,
                             .max_model_len = 4096,
                             .default_ttl_seconds = 100,
                             .max_ttl_seconds = 100,
                             .default_idle_offload_seconds = 2};
  const int64_t before = allocation_counters.live_bytes;
  auto store = std::make_unique<SessionStore>(config, 16, tree);
  for (int32_t i = 0; i < kSessions; ++i) {
    const std::string name = "conversation" + std::to_string(i);
    ASSERT_TRUE(store->Create(1, name, {}, 1).ok());
    const auto turn = store->BeginTurn(1, name, 0, 1);
    // A sequence has room for more than it has tokens.
    std::vector<int32_t> tokens;
    tokens.reserve(4096);
    tokens.resize(kTokens, i);
    const NodeId root = tree.Find(1, {});
    tree.Hold(root);
    const auto inserted = tree.Insert(root, std::span(tokens).first(16), pool.Take());
    store->CommitTurn(*turn, std::move(tokens), inserted.node, 1);
    tree.Release(inserted.node);
    tree.Release(root);
  }
  const double bytes = static_cast<double>(allocation_counters.live_bytes - before) / kSessions;
  EXPECT_LE(bytes, SessionStore::kBytesPerSession + 4 * kTokens);
  EXPECT_GE(bytes, SessionStore::kBytesPerSession / 2 + 4 * kTokens);  // or the header is wrong
  std::printf("%.0f bytes a session of %d tokens\n", bytes, kTokens);
  store->CheckInvariants();
  tree.SetKeeper(nullptr);
}

}  // namespace
}  // namespace quire
