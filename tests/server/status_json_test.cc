// The JSON behind the status page, compared with the facts it is made of and with docs/status.md,
// and the security policy of the page.
#include "server/admin/status_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "nlohmann/json.hpp"
#include "server/admin/status_page.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Facts in which every part of the page has something to show.
struct Example {
  EngineSetup setup;
  StatusFacts facts;

  Example() {
    setup.config.max_num_seqs = 64;
    setup.limits.max_num_queued_reqs = 500;
    setup.memory.ranks = 2;
    setup.memory.parts = {{"weights", 3000}, {"kv_cache", 11 * 400}};
    setup.memory.num_blocks = 11;
    setup.memory.block_size = 16;
    setup.memory.num_pages = 5;
    setup.memory.host_bytes = 5 * 800;
    facts.state = "ready";
    facts.version = "9.9";
    facts.model = "<script>\"&";
    facts.address = "127.0.0.1:50051";
    facts.setup = &setup;
    facts.open_streams = 4;
    facts.detached_streams = 2;
    facts.engine.load = {
        .running = 3, .waiting = 1, .free_blocks = 7, .cached_blocks = 2, .total_blocks = 10};
    facts.engine.cache = {.queried_tokens = 200, .device_tokens = 100, .host_tokens = 50};
    facts.engine.cache.host_pages = 5;
    facts.engine.cache.sessions = 6;
    facts.engine.cache.sessions_by_state = {1, 0, 0, 5};
    facts.engine.fault = "rank <1>";
    facts.engine.steps = 1234567;
    facts.engine.last_step_tokens = 512;
    facts.engine.last_step_ns = 2'500'000;
    facts.engine.graphs = {{.size = 8, .replays = 10, .padded_rows = 20}};
    SampledSteps sampled;
    PartSums parts{};
    parts[static_cast<size_t>(StepPart::kProducts)] = 1'500'000;
    sampled.Add(parts, 3, 512);
    sampled.Add({}, 3, 3);
    facts.engine.sampled = {sampled};
    SchedulerView view;
    view.kv.blocks = {7, 2, 0, 0, 1, 0};
    view.kv.block_cells = {BlockOwner::kRunning, BlockOwner::kCopying, BlockOwner::kFree};
    view.kv.page_cells = {PageOwner::kUnused, PageOwner::kBacked, PageOwner::kNotReady};
    view.classes = {{.priority = 10, .running = 3, .waiting = 1}};
    facts.view = std::make_shared<const SchedulerView>(view);
    facts.now.number = 17;
    facts.now.generated_tokens_per_second = 150.25;
    facts.problems = {{"2026-11-20T17:01:53.798Z", Severity::kError, "disk \"x\" is <gone>"}};
  }
};

TEST(StatusJsonTest, SaysTheFacts) {
  const Example example;
  const json status = json::parse(StatusJson(example.facts));
  EXPECT_EQ(status["state"], "ready");
  EXPECT_EQ(status["model"], "<script>\"&");
  EXPECT_EQ(status["fault"], "rank <1>");
  EXPECT_EQ(status["requests"]["running"], 3);
  EXPECT_EQ(status["requests"]["waiting_limit"], 500);
  EXPECT_EQ(status["requests"]["detached_streams"], 2);
  EXPECT_EQ(status["requests"]["classes"],
            json::parse(R"([{"priority": 10, "running": 3, "waiting": 1, "restoring": 0}])"));
  EXPECT_EQ(status["kv"]["used_blocks"], 3);
  EXPECT_EQ(status["kv"]["block_bytes"], 800);  // 400 on each of two ranks
  EXPECT_EQ(status["kv"]["page_bytes"], 800);
  EXPECT_EQ(status["kv"]["map"]["blocks"]["running"], 1);
  EXPECT_EQ(status["kv"]["map"]["blocks"]["free"], 7);
  EXPECT_EQ(status["kv"]["map"]["block_cells"], "rxf");
  EXPECT_EQ(status["kv"]["map"]["page_cells"], "ubn");
  EXPECT_EQ(status["sessions"]["by_state"]["host"], 5);
  EXPECT_EQ(status["sessions"]["by_state"]["active"], 1);
  EXPECT_EQ(status["steps"]["last_microseconds"], 2500);
  EXPECT_EQ(status["steps"]["graphs"][0]["padded_ratio"], .25);
  const json products = status["steps"]["sampled_ranks"][0]["parts"][1];
  EXPECT_EQ(products["name"], "products");
  EXPECT_EQ(products["microseconds"], 0);  // of the last one
  EXPECT_EQ(products["mean_microseconds"], 750);
  EXPECT_EQ(status["totals"]["steps"], 1234567);
  EXPECT_EQ(status["now"]["number"], 17);
  EXPECT_EQ(status["now"]["generated_tokens_per_second"], 150.25);
  EXPECT_TRUE(status["now"]["first_token_p50_ms"].is_null());
  EXPECT_EQ(status["memory_plan"]["total_bytes"], 7400);
  EXPECT_EQ(status["problems"][0]["text"], "disk \"x\" is <gone>");
  EXPECT_EQ(status["problems"][0]["severity"], "error");
}

TEST(StatusJsonTest, AServerThatLoadsHasAStateAndNoPlan) {
  const json status = json::parse(StatusJson({.state = "loading", .model = "m"}));
  EXPECT_EQ(status["state"], "loading");
  EXPECT_FALSE(status.contains("memory_plan"));
  EXPECT_TRUE(status["kv"]["map"].is_null());
  EXPECT_EQ(status["kv"]["blocks"], 0);
}

TEST(StatusJsonTest, HistoryHasAColumnForEachSeries) {
  std::vector<HistorySecond> seconds(3);
  for (size_t i = 0; i < 3; ++i) {
    seconds[i].number = static_cast<int64_t>(i) + 5;
    seconds[i].end_seconds = 1'795'386'788.5;
    seconds[i].stored_bytes_per_second = 1234567.8;
  }
  seconds[1].first_token.p99 = .01234;
  const json history = json::parse(HistoryJson(seconds));
  EXPECT_EQ(history["number"], json::parse("[5, 6, 7]"));
  EXPECT_NEAR(history["end_unix_seconds"][0].get<double>(), 1'795'386'788.5, 1);
  EXPECT_EQ(history["first_token_p99_ms"], json::parse("[null, 12.34, null]"));
  EXPECT_EQ(history["stored_bytes_per_second"][2], 1234568);
  EXPECT_EQ(history.size(), AllHistorySeries().size() + 2);
  EXPECT_EQ(json::parse(HistoryJson({}))["number"], json::array());
}

void CollectNames(const json& value, std::set<std::string>* names) {
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      names->insert(name);
      CollectNames(inner, names);
    }
  }
  if (value.is_array()) {
    for (const json& inner : value) CollectNames(inner, names);
  }
}

TEST(StatusJsonTest, EveryNameIsDocumented) {
  std::ifstream file(QUIRE_SOURCE_DIR "/docs/status.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> names;
  const Example example;
  CollectNames(json::parse(StatusJson(example.facts)), &names);
  CollectNames(json::parse(HistoryJson({})), &names);
  EXPECT_GT(names.size(), 100u);
  for (const std::string& name : names) EXPECT_THAT(page, HasSubstr("`" + name + "`"));
}

// The digests are those of `openssl dgst -sha256 -binary | base64`.
TEST(StatusPageTest, ItsPolicyNamesTheStyleAndTheScriptByTheirHashes) {
  EXPECT_EQ(SecurityPolicyFor("<style>a{}</style><p>x</p><script>let x;</script>"),
            "default-src 'none'; connect-src 'self'; img-src data:; "
            "style-src 'sha256-X1RutGBrXCt9KkSaXMK7tHftWiRscFHOhxsS8tv8hBk='; "
            "script-src 'sha256-0d16uaq56s5GjNyUV+TVNe6kCw90XFh4MjUbyKmlPjs='; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}

TEST(StatusPageTest, IsTheFileOfTheTreeAndNeedsNothingElse) {
  std::ifstream file(QUIRE_SOURCE_DIR "/server/admin/page/status.html");
  const std::string html{std::istreambuf_iterator<char>(file), {}};
  const AdminPage page = StatusPage();
  EXPECT_EQ(page.body, html);
  EXPECT_EQ(page.security_policy, SecurityPolicyFor(html));
  EXPECT_EQ(html.find("innerHTML"), std::string::npos);
  for (const char* part : {"src=", "@import", "url(", " style=\"", " onclick="}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace quire
