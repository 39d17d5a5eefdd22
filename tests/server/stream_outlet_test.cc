// A GenerationStream over an outlet that speaks another protocol, lines of text: acceptance,
// output, ends and refusals arrive without a protobuf message or a gRPC call. Covers
// server/generate/generation_stream.cc
#include "server/generate/stream_outlet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/worker/in_process_transport.h"
#include "server/call/connection_table.h"
#include "server/call/text_pool.h"
#include "server/generate/call_opening.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/generate/output_shards.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/identity/open_door.h"
#include "server/metrics/metrics.h"
#include "server/structured/guide_maker.h"
#include "tests/engine/engine_fakes.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LineOutlet : public StreamOutlet {
 public:
  // Set before the stream begins.
  GenerationStream* stream = nullptr;
  int64_t max_bytes = 1 << 20;

  void WriteAccepted(const AcceptedFrame& accepted) override {
    Write("accepted " + std::to_string(accepted.prompt_tokens) + " " +
          std::to_string(accepted.max_tokens));
  }
  void WriteTokens(const OutputDelta& delta, const OutputOptions&) override {
    Write(Line("tokens", delta));
  }
  void WriteEnd(const EndFrame& end) override {
    End(Line("end", end.rest) + " " + Name(end.finish.reason) + " at " +
        std::to_string(end.finish.position));
  }
  void Fail(const absl::Status& status) override {
    End("failed " + std::string(status.message().data(), status.message().size()));
  }
  void Reset() override {}
  absl::Status CheckSize(int64_t bytes) const override {
    return bytes <= max_bytes ? absl::OkStatus() : absl::ResourceExhaustedError("too long a line");
  }

  // Waits for the end of the call. The tokens of the frames between are joined into one line.
  std::vector<std::string> Lines() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    std::vector<std::string> joined;
    for (const std::string& line : lines_) {
      const bool more =
          line.starts_with("tokens") && !joined.empty() && joined.back().starts_with("tokens");
      if (more) {
        joined.back() += line.substr(6);
      } else {
        joined.push_back(line);
      }
    }
    return joined;
  }

 protected:
  void Add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
  }

 private:
  static std::string Line(std::string line, const OutputDelta& delta) {
    for (const uint32_t id : delta.token_ids) line += " " + std::to_string(id);
    return line;
  }
  void Write(const std::string& line) {
    Add(line);
    stream->WriteDone(true);
  }
  void End(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    ended_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  bool ended_ = false;
};

// Holds up the thread of its shard.
class LateOutlet final : public LineOutlet {
 public:
  std::latch begun{1};
  std::latch may_go_on{1};

  void WriteTokens(const OutputDelta& delta, const OutputOptions& output) override {
    begun.count_down();
    may_go_on.wait();
    LineOutlet::WriteTokens(delta, output);
  }
};

// Of a reader that does not read: its first write is done when the test says so.
class UnreadOutlet final : public LineOutlet {
 public:
  void WriteAccepted(const AcceptedFrame&) override { Add("accepted"); }
};

// An engine that continues n tokens by n, n + 1, n + 2, ..., and all that a stream needs.
class StreamOutletTest : public testing::Test {
 protected:
  StreamOutletTest() {
    SchedulerConfig& config = model_.setup.scheduler;
    config = {.num_blocks = 65,
              .block_size = 16,
              .max_model_len = 64,
              .max_num_seqs = 4,
              .max_num_batched_tokens = 64,
              .max_num_queued_reqs = 8};
    config.sessions = {.max_sessions = 8,
                       .max_sessions_per_tenant = 8,
                       .max_session_tokens = 1 << 20,
                       .max_model_len = 64,
                       .default_ttl_seconds = 60,
                       .max_ttl_seconds = 60};
    model_.setup.limits = {
        .max_num_queued_reqs = 8, .max_num_queued_tokens = 1 << 20, .max_model_len = 64};
    model_.setup.memory.num_blocks = config.num_blocks;
    model_.setup.memory.block_size = config.block_size;
    std::vector<std::unique_ptr<StepRunner>> runners;
    runners.push_back(std::make_unique<PositionRunner>());
    engine_ = std::make_unique<Engine>(config, model_.setup.limits,
                                       std::make_unique<InProcessTransport>(std::move(runners), 2),
                                       &sink_, /*graph_sizes=*/std::vector<int32_t>());
    sink_.shards.SetConnections(&connections_);
    resources_.emplace(GenerateResources{.calls = calls_,
                                         .model = model_,
                                         .engine = *engine_,
                                         .drain = drain_,
                                         .streams = table_,
                                         .stalls = stalls_,
                                         .guides = guides_});
  }

  std::shared_ptr<GenerationStream> Begin(
      LineOutlet& outlet, std::unique_ptr<Request> request,
      GenerationStream::Shape shape = GenerationStream::Shape::kStream) {
    const auto stream = std::make_shared<GenerationStream>(&*resources_, &outlet, shape,
                                                           GenerationStream::Origin{LocalAdmin()});
    outlet.stream = stream.get();
    EXPECT_TRUE(stream->Claim("").ok());
    std::vector<std::unique_ptr<Request>> requests;
    requests.push_back(std::move(request));
    SubmitToEngine(&*resources_, {stream}, std::move(requests), {.text = false});
    return stream;
  }
  std::vector<std::string> Run(std::unique_ptr<Request> request,
                               GenerationStream::Shape shape = GenerationStream::Shape::kStream,
                               int64_t max_bytes = 1 << 20) {
    LineOutlet outlet;
    outlet.max_bytes = max_bytes;
    const auto stream = Begin(outlet, std::move(request), shape);
    const std::vector<std::string> lines = outlet.Lines();
    stream->Closed();
    return lines;
  }
  // A stream of `tokens` tokens from 3 on, without a reader. Its shard brings all of them at once.
  std::shared_ptr<GenerationStream> BeginLate(UnreadOutlet& outlet, int tokens) {
    LateOutlet late;
    const auto other = Begin(late, Ask(3, 1));
    late.begun.wait();
    const auto stream = Begin(outlet, Ask(3, tokens));
    while (!engine_->Idle()) std::this_thread::yield();
    late.may_go_on.count_down();
    late.Lines();
    other->Closed();
    Run(Ask(3, 1));  // the shard takes it behind all of them
    return stream;
  }
  // Of a counter of slow readers.
  int Count(const std::string& counter) {
    const std::string page = metrics_.Serialize(engine_->Stats());
    const std::string series = "\nquire_slow_reader_" + counter + "_total{model_name=\"test\"} ";
    return std::stoi(page.substr(page.find(series) + series.size()));
  }
  static std::unique_ptr<Request> Ask(int prompt_tokens, int max_tokens) {
    auto request = std::make_unique<Request>();
    request->prompt.assign(prompt_tokens, 1);
    request->sampling.max_tokens = max_tokens;
    return request;
  }
  static std::unique_ptr<Request> Turn(int prompt_tokens, int max_tokens, int position) {
    auto request = Ask(prompt_tokens, max_tokens);
    request->session_turn =
        TurnRequest{.session = "s", .expected_position = position, .create_session = true};
    return request;
  }

  struct Sink : OutputSink {
    OutputShards shards{1};
    void OnTurnStarts(std::span<const TurnStart> starts) override { shards.OnTurnStarts(starts); }
    void OnReadings(std::span<const ReadingEvent> readings,
                    std::span<const uint32_t> words) override {
      shards.OnReadings(readings, words);
    }
    void OnStep(std::span<const TokenEvent> tokens,
                std::span<const FinishEvent> finishes) override {
      shards.OnStep(tokens, finishes);
    }
  };

  ServingModel model_;
  ServerMetrics metrics_{"test"};
  ConnectionTable connections_{{}};
  TextPool text_pool_{1, 8, 1 << 20};
  FrontOptions options_;
  DrainState drain_;
  const OpenDoor door_{true};
  CallResources calls_{.options = options_,
                       .door = door_,
                       .metrics = metrics_,
                       .connections = connections_,
                       .text_pool = text_pool_};
  std::optional<GenerateResources> resources_;
  StreamTable table_{8};
  StallWatch stalls_{60'000'000'000};
  GuideMaker guides_{&model_, &metrics_.guides(), nullptr};
  std::shared_ptr<GenerationStream> late_;  // outlives the shard's use of it
  Sink sink_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(StreamOutletTest, CarriesARequestThroughAnOutletWithoutProtobuf) {
  EXPECT_THAT(Run(Ask(3, 4)), ElementsAre("accepted 3 4", "tokens 3 4 5 6", "end MAX_TOKENS at 0"));
  EXPECT_THAT(Run(Ask(3, 4), GenerationStream::Shape::kUnary),
              ElementsAre("end 3 4 5 6 MAX_TOKENS at 0"));
}

TEST_F(StreamOutletTest, CarriesTurnsAndTheirRefusals) {
  EXPECT_THAT(Run(Turn(3, 2, 0)), ElementsAre("accepted 3 2", "tokens 3 4", "end MAX_TOKENS at 5"));
  EXPECT_THAT(Run(Turn(1, 2, 5)), ElementsAre("accepted 6 2", "tokens 6 7", "end MAX_TOKENS at 8"));
  EXPECT_THAT(Run(Turn(1, 2, 5)), ElementsAre("failed session \"s\" is at position 8, not at 5"));
  EXPECT_THAT(Run(Turn(60, 2, 8)),
              ElementsAre(HasSubstr("prompt: has 68 tokens; the context of 64 tokens leaves no")));
  EXPECT_THAT(Run(Ask(64, 2)), ElementsAre(HasSubstr("shorten the prompt")));
}

TEST_F(StreamOutletTest, EndsAReplyThatItsOutletCannotHold) {
  EXPECT_THAT(Run(Ask(3, 30), GenerationStream::Shape::kUnary, /*max_bytes=*/8),
              ElementsAre("failed too long a line"));
}

// Its shard was late, not its reader: 30 tokens of 4 bytes come at once.
TEST_F(StreamOutletTest, ALeapOverTheBoundOfUnsentOutputPausesTheStream) {
  options_.stream_buffer_bytes = 64;
  UnreadOutlet outlet;
  late_ = BeginLate(outlet, 30);
  EXPECT_EQ(Count("paused"), 1);
  EXPECT_EQ(Count("shed"), 0);
  late_->WriteDone(true);
  std::string tokens = "tokens";
  for (int token = 3; token < 33; ++token) tokens += " " + std::to_string(token);
  EXPECT_THAT(outlet.Lines(), ElementsAre("accepted", tokens, "end MAX_TOKENS at 0"));
  late_->Closed();
}

TEST_F(StreamOutletTest, APausedStreamThatGrowsByHalfOfTheBoundIsShed) {
  options_.stream_buffer_bytes = 64;
  UnreadOutlet outlet;
  late_ = BeginLate(outlet, 30);
  const std::vector<TokenEvent> more(8, {.id = late_->id(), .cookie = late_.get()});
  sink_.OnStep(more, {});
  Run(Ask(3, 1));
  EXPECT_EQ(Count("shed"), 0);
  sink_.OnStep({more.data(), 1}, {});
  Run(Ask(3, 1));
  EXPECT_EQ(Count("shed"), 1);
  late_->WriteDone(true);
  EXPECT_THAT(outlet.Lines(), ElementsAre("accepted", HasSubstr("failed")));
  late_->Closed();
}

}  // namespace
}  // namespace quire
