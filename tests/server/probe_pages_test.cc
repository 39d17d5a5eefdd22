// Probes by the states of a server: docs/deploy.md says what orchestrators do with them.
#include "server/admin/probe_pages.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

// The statuses of /livez, /readyz, /health and /startupz.
std::string Statuses(const ProbeFacts& facts) {
  std::string all;
  for (const char* path : {"/livez", "/readyz", "/health", "/startupz"}) {
    const AdminPage page = ProbePage(path, facts);
    all += (all.empty() ? "" : " ") + std::to_string(page.status);
    EXPECT_EQ(page.body == "ok\n", page.status == 200) << path;
  }
  return all;
}

TEST(ProbePagesTest, StatesHaveTheirStatuses) {
  EXPECT_EQ(Statuses({.ready = false}), "200 503 503 503");
  EXPECT_EQ(Statuses({.ready = true}), "200 200 200 200");
  EXPECT_EQ(Statuses({.ready = true, .healthy = false}), "503 503 503 200");
  EXPECT_EQ(Statuses({.ready = true, .healthy = false, .recovering = true}), "200 503 503 200");
  EXPECT_EQ(Statuses({.ready = true, .draining = true}), "200 503 200 200");
}

TEST(ProbePagesTest, ReasonsAreNamed) {
  EXPECT_EQ(ProbePage("/startupz", {.ready = false}).body, "loading\n");
  EXPECT_EQ(ProbePage("/health", {.ready = false}).body, "loading\n");
  EXPECT_EQ(ProbePage("/health", {.ready = true, .recovering = true}).body, "recovering\n");
  EXPECT_EQ(ProbePage("/livez", {.ready = true, .healthy = false}).body, "hung\n");
  EXPECT_EQ(ProbePage("/readyz", {.ready = true, .draining = true, .state = "draining"}).body,
            "draining\n");
}

TEST(ProbePagesTest, AnotherPathIsToldThePages) {
  const AdminPage page = ProbePage("/ready", {.ready = true});
  EXPECT_EQ(page.status, 404);
  EXPECT_NE(page.body.find("/readyz"), std::string::npos);
}

}  // namespace
}  // namespace quire
