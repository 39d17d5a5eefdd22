// Sessions on a real checkpoint: the replies depend on the conversation's tokens alone, whether its
// KV was kept, offloaded, lost, shared with a fork, or outlived its workers.
// Covers engine/worker/shm/host_arena.cc, engine/worker/copy/copy_engine.cc
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <ostream>
#include <random>
#include <string>
#include <tuple>

#include "engine/base/clock.h"
#include "engine/engine_workers.h"
#include "gtest/gtest.h"
#include "tests/engine/model/checkpoints.h"
#include "tests/engine/session_client.h"
#include "tests/engine/worker/living_workers.h"

namespace quire {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int kTurns = 6;

class CollectingSink : public OutputSink {
 public:
  struct Reply {
    Tokens tokens;
    FinishEvent end;
    bool ended = false;
  };
  void OnTurnStarts(std::span<const TurnStart> starts) override {
    for (const TurnStart& start : starts) CHECK(start.status.ok());
  }
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) replies_[event.id].tokens.push_back(event.token);
    for (const FinishEvent& event : finishes) {
      replies_[event.id].end = event;
      replies_[event.id].ended = true;
    }
    changed_.notify_all();
  }
  Reply Await(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return replies_[id].ended; });
    return replies_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Reply> replies_;
};

// The text and the sampling of a conversation's turn: greedy, random, or with penalties, which
// read all tokens of the conversation.
Tokens Text(int conversation, int turn, int32_t vocab_size) {
  std::mt19937 random(static_cast<uint32_t>(conversation * 100 + turn));
  Tokens text(1 + random() % 45);
  for (int32_t& token : text) token = static_cast<int32_t>(random() % vocab_size);
  return text;
}
SamplingParams Sampling(int conversation, int turn) {
  SamplingParams sampling;
  sampling.max_tokens = 10 + (turn * 7 + conversation) % 25;
  sampling.row.seed = static_cast<uint64_t>(conversation * 10 + turn);
  sampling.row.temperature = turn % 3 == 0 ? 0.0f : 1.0f;
  sampling.row.repetition_penalty = turn % 2 == 1 ? 1.2f : 1.0f;
  sampling.row.frequency_penalty = turn % 4 == 2 ? 0.4f : 0.0f;
  return sampling;
}

// A checkpoint, and the type of its KV.
struct Served {
  testing::TestCheckpoint checkpoint;
  std::string kv_cache_dtype = "float32";

  int64_t kv_element_bytes() const { return kv_cache_dtype == "fp8" ? 1 : 4; }
};

void PrintTo(const Served& served, std::ostream* out) {
  *out << served.checkpoint.name << " with KV in " << served.kv_cache_dtype;
}

EngineConfig ConfigFor(const Served& served) {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/tests/testdata/models/" + std::string(served.checkpoint.name);
  config.kv_cache_dtype = served.kv_cache_dtype;
  config.device = "cpu";
  config.cpu_threads = 2;
  config.max_model_len = 512;
  config.max_num_seqs = 8;
  config.kv_checksum = true;
  config.session_idle_offload_after_seconds = 3600;
  config.worker_program = QUIRE_BINARY_DIR "/bin/quire-worker";
  return config;
}

class Server {
 public:
  explicit Server(const EngineConfig& config) {
    absl::StatusOr<std::unique_ptr<EngineWorkers>> workers = EngineWorkers::Find(config);
    EXPECT_TRUE(workers.ok()) << workers.status();
    absl::StatusOr<EngineSetup> setup = PlanEngine((*workers)->config(), (*workers)->device());
    EXPECT_TRUE(setup.ok()) << setup.status();
    vocab_size_ = setup->model.vocab_size;
    WorkerReport report;
    absl::StatusOr<std::unique_ptr<Transport>> transport = (*workers)->Start(*setup, &report);
    EXPECT_TRUE(transport.ok()) << transport.status();
    engine_ = std::make_unique<Engine>(setup->scheduler, setup->limits, *std::move(transport),
                                       &sink_, setup->graph_sizes);
  }

  CollectingSink::Reply Generate(std::unique_ptr<Request> request, const SamplingParams& sampling) {
    request->id = ++last_id_;
    request->sampling = sampling;
    request->arrival_ns = SteadyNowNs();
    const absl::Status status = engine_->Submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status;
    CollectingSink::Reply reply = sink_.Await(last_id_);
    EXPECT_EQ(reply.end.reason, FinishReason::kMaxTokens);
    return reply;
  }
  Tokens TextOf(int conversation, int turn) const { return Text(conversation, turn, vocab_size_); }
  // A turn of a conversation, held under `name`.
  CollectingSink::Reply Say(const SessionName& name, int conversation, int turn) {
    return Generate(MakeTurn(name, TextOf(conversation, turn)), Sampling(conversation, turn));
  }
  void Create(const SessionName& name) {
    const auto created = CreateSession(*engine_, name, {});
    EXPECT_TRUE(created.ok()) << created.status();
  }
  // Waits until no KV of the session is on the device.
  void Offload(const SessionName& name) {
    const auto asked = ChangeSession(*engine_, name, SessionOperation::Offload());
    EXPECT_TRUE(asked.ok()) << asked.status();
    AwaitSession(*engine_, name, [](const SessionInfo& info) {
      return info.tiers.device_tokens == 0 && info.tiers.host_tokens == info.position - 1;
    });
  }
  Engine& engine() { return *engine_; }

 private:
  CollectingSink sink_;
  std::unique_ptr<Engine> engine_;
  RequestId last_id_ = 0;
  int32_t vocab_size_ = 0;
};

using Replies = std::vector<Tokens>;  // by turn

// The expected replies: no sessions, no cache, one request at a time with its whole conversation.
const Replies& PlainReplies(EngineConfig config, int conversation) {
  static std::map<std::tuple<std::string, std::string, int>, Replies> known;
  Replies& replies = known[{config.model, config.kv_cache_dtype, conversation}];
  if (!replies.empty()) return replies;
  config.enable_prefix_caching = false;
  config.kv_offloading_size = 0;
  Server server(config);
  Tokens said;
  for (int turn = 0; turn < kTurns; ++turn) {
    const Tokens text = server.TextOf(conversation, turn);
    said.insert(said.end(), text.begin(), text.end());
    auto request = std::make_unique<Request>();
    request->prompt = said;
    replies.push_back(server.Generate(std::move(request), Sampling(conversation, turn)).tokens);
    said.insert(said.end(), replies.back().begin(), replies.back().end());
  }
  return replies;
}

// Over one checkpoint of every family, and over some with 8-bit KV.
class SessionModelTest : public ::testing::TestWithParam<Served> {
 protected:
  static EngineConfig Config() { return ConfigFor(GetParam()); }
  static const Replies& Plain(int conversation) { return PlainReplies(Config(), conversation); }
};

TEST_P(SessionModelTest, TheDeviceKeepsTheKvForTheNextTurn) {
  Server server(Config());
  server.Create("s");
  int32_t position = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto reply = server.Say("s", 1, turn);
    EXPECT_EQ(reply.tokens, Plain(1)[turn]) << turn;
    EXPECT_EQ(reply.end.residency.outcome,
              turn == 0 ? Residency::Outcome::kNone : Residency::Outcome::kDevice);
    EXPECT_EQ(reply.end.residency.device_tokens, std::max(0, position - 1));
    EXPECT_EQ(reply.end.residency.recomputed_tokens, 0);
    position = reply.end.position;
  }
}

TEST_P(SessionModelTest, RepliesAreEqualWhenOffloadedAfterEachTurn) {
  for (const int ranks : {1, 2}) {
    EngineConfig config = Config();
    config.tensor_parallel_size = ranks;
    const ModelConfig model = *ModelConfig::Load(config.model);
    if (!model.CheckTensorParallel(ranks).ok()) continue;
    // Each rank scales its slice of an 8-bit row by itself: ranks make other tokens.
    if (ranks > 1 && !model.quantization.empty()) continue;
    Server server(config);
    server.Create("s");
    int32_t position = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto reply = server.Say("s", 1, turn);
      EXPECT_EQ(reply.tokens, Plain(1)[turn]) << turn;
      EXPECT_EQ(reply.end.residency.device_tokens + reply.end.residency.host_tokens +
                    reply.end.residency.recomputed_tokens,
                std::max(0, position - 1));
      position = reply.end.position;
      server.Offload("s");
    }
    const EngineStats stats = server.engine().Stats();
    EXPECT_GT(stats.tiering.stored_blocks, 0);
    EXPECT_GT(stats.tiering.loaded_blocks, 0) << "nothing ever came back";
    EXPECT_EQ(stats.tiering.corrupt_pages, 0);
  }
}

TEST_P(SessionModelTest, AForkRepliesAsTheOriginalWould) {
  Server server(Config());
  server.Create("s");
  for (int turn = 0; turn < 3; ++turn) server.Say("s", 1, turn);
  const auto fork = [&](const SessionName& from, const SessionName& name) {
    const auto forked = ChangeSession(server.engine(), from, SessionOperation::Fork{name, {}});
    EXPECT_TRUE(forked.ok()) << forked.status();
  };
  server.Offload("s");
  fork("s", "from-the-host");
  fork("s", "beside-it");
  for (const char* name : {"from-the-host", "s", "beside-it"}) {
    for (int turn = 3; turn < kTurns; ++turn) {
      EXPECT_EQ(server.Say(name, 1, turn).tokens, Plain(1)[turn]) << name << " " << turn;
      if (turn == 4) fork(name, std::string(name) + "-again");
    }
    EXPECT_EQ(server.Say(std::string(name) + "-again", 1, 5).tokens, Plain(1)[5]) << name;
  }
}

TEST_P(SessionModelTest, RepliesAreEqualAfterATruncation) {
  Server server(Config());
  server.Create("s");
  std::vector<int32_t> positions;
  for (int turn = 0; turn < kTurns; ++turn) {
    positions.push_back(server.Say("s", 1, turn).end.position);
  }
  for (const int back_to : {4, 2, 0}) {
    const auto cut =
        ChangeSession(server.engine(), "s", SessionOperation::Truncate{positions[back_to]});
    ASSERT_TRUE(cut.ok()) << cut.status();
    for (int turn = back_to + 1; turn < kTurns; ++turn) {
      EXPECT_EQ(server.Say("s", 1, turn).tokens, Plain(1)[turn]) << back_to << " " << turn;
    }
  }
}

// K and V of 16 tokens.
double PageBytes(const std::string& model, int64_t element_bytes) {
  const ModelConfig config = *ModelConfig::Load(model);
  return 2.0 * config.num_layers * config.num_kv_heads * 16 * config.head_dim *
         static_cast<double>(element_bytes);
}

// Eight conversations, a pool for two, and host memory for eight, for three or for almost none.
TEST_P(SessionModelTest, RepliesAreEqualUnderPressure) {
  constexpr int kConversations = 8;
  for (const int32_t pages : {400, 100, 2}) {
    EngineConfig config = Config();
    config.num_blocks_override = 65;
    config.max_num_seqs = 4;
    config.session_idle_offload_after_seconds = 0;
    config.kv_offloading_size =
        pages * PageBytes(config.model, GetParam().kv_element_bytes()) / (1 << 30);
    Server server(config);
    for (int c = 0; c < kConversations; ++c) server.Create(std::to_string(c));
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int c = 0; c < kConversations; ++c) {
        EXPECT_EQ(server.Say(std::to_string(c), c, turn).tokens, Plain(c)[turn])
            << pages << " pages, turn " << turn << " of " << c;
      }
    }
    EXPECT_EQ(server.engine().Stats().cache.host_pages, pages);
  }
}

TEST_P(SessionModelTest, RepliesAreEqualAfterAWorkerDeath) {
  EngineConfig config = Config();
  config.worker_process = "on";
  Server server(config);
  server.Create("kept");
  server.Create("lost");
  for (int turn = 0; turn < 4; ++turn) {
    const auto kept = server.Say("kept", 1, turn);
    const auto lost = server.Say("lost", 2, turn);
    EXPECT_EQ(kept.tokens, Plain(1)[turn]) << turn;
    EXPECT_EQ(lost.tokens, Plain(2)[turn]) << turn;
    if (turn > 0) {
      // KV on the host is still there. The rest is computed again from the tokens.
      EXPECT_EQ(lost.end.residency.outcome, Residency::Outcome::kRecomputed);
      EXPECT_EQ(lost.end.residency.device_tokens, 0);
    }
    if (turn == 3) break;
    server.Offload("kept");
    ASSERT_EQ(testing::Workers().size(), 1u);
    kill(testing::Workers().at(0), SIGKILL);
    while (server.engine().Stats().recoveries != static_cast<uint64_t>(turn + 1)) {
      std::this_thread::yield();
    }
    EXPECT_EQ(GetSession(server.engine(), "kept")->tiers.host_tokens, kept.end.position - 1);
    EXPECT_EQ(GetSession(server.engine(), "lost")->state, SessionState::kDropped);
  }
}

std::vector<Served> AllServed() {
  std::vector<Served> all;
  for (const testing::TestCheckpoint& checkpoint : testing::FamilyCheckpoints()) {
    all.push_back({checkpoint});
    const std::string name = checkpoint.name;
    if (name == "llama" || name == "gemma2") all.push_back({checkpoint, "fp8"});
  }
  all.push_back({{"fp8-kv", "", ""}, "fp8"});
  for (const char* narrow : {"fp8-block", "int4-awq"}) all.push_back({{narrow, "", ""}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, SessionModelTest, ::testing::ValuesIn(AllServed()),
                         [](const auto& info) {
                           std::string name = info.param.checkpoint.name;
                           std::ranges::replace(name, '-', '_');
                           return name + "_kv_" + info.param.kv_cache_dtype;
                         });

}  // namespace
}  // namespace quire
