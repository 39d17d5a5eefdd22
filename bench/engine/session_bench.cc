// Time from a turn's arrival to its first token, for a session of a given length whose KV is on the
// device, is restored from host memory, or is computed again. The demo model on the CPU, one
// request at a time; prints no figure unless all three give the same answer. Prints one JSON object
// per line.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine_workers.h"
#include "kernels/check.h"
#include "tests/engine/session_client.h"

namespace quire {
namespace {

constexpr int kRuns = 9;
constexpr int32_t kTextTokens = 8;
constexpr int32_t kOutputTokens = 4;
const SessionName kName = "s";

using Tokens = std::vector<int32_t>;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The only request that runs.
class LastReply : public OutputSink {
 public:
  struct Reply {
    Tokens tokens;
    FinishEvent end;
  };
  void OnTurnStarts(std::span<const TurnStart> starts) override {
    for (const TurnStart& start : starts) CHECK(start.status.ok());
  }
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) reply_.tokens.push_back(event.token);
    if (finishes.empty()) return;
    reply_.end = finishes.front();
    ended_ = true;
    changed_.notify_all();
  }
  Reply Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    ended_ = false;
    return std::exchange(reply_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Reply reply_;
  bool ended_ = false;
};

class Bench {
 public:
  Bench() {
    EngineConfig config;
    config.model = QUIRE_SOURCE_DIR "/models/demo";
    config.device = "cpu";
    config.session_idle_offload_after_seconds = 86400;
    absl::StatusOr<EngineSetup> setup = PlanEngine(config);
    CHECK(setup.ok());
    setup_ = *std::move(setup);
    WorkerReport report;
    absl::StatusOr<std::unique_ptr<EngineWorkers>> workers = EngineWorkers::Find(setup_.config);
    CHECK(workers.ok());
    absl::StatusOr<std::unique_ptr<Transport>> transport = (*workers)->Start(setup_, &report);
    CHECK(transport.ok());
    engine_ = std::make_unique<Engine>(setup_.scheduler, setup_.limits, *std::move(transport),
                                       &sink_, setup_.graph_sizes);
  }

  // True if all answers are equal.
  bool Measure(int32_t length) {
    CHECK(CreateSession(*engine_, kName, {}).ok());
    Generate(MakeTurn(kName, Random(length - kOutputTokens)));
    bool alike = true;
    std::vector<double> resident, restored, recomputed;
    std::map<std::string, int> outcomes;
    for (int run = 0; run < kRuns; ++run) {
      CutTo(length);
      const Tokens text = Random(kTextTokens);
      const LastReply::Reply hot = Generate(MakeTurn(kName, text));
      CutTo(length);
      Offload();
      const LastReply::Reply cold = Generate(MakeTurn(kName, text));
      ++outcomes[Name(cold.end.residency.outcome)];
      const LastReply::Reply again = Generate(AsPlain(length, text));
      alike &= hot.tokens == cold.tokens && hot.tokens == again.tokens;
      resident.push_back(FirstTokenMs(hot));
      restored.push_back(FirstTokenMs(cold));
      recomputed.push_back(FirstTokenMs(again));
    }
    CHECK(RunSession(*engine_, kName, SessionOperation::Close()).status.ok());
    if (!alike) return false;
    const std::string outcome = outcomes.size() == 1 ? outcomes.begin()->first : "MIXED";
    const double kept_ms = Median(resident), back_ms = Median(restored),
                 again_ms = Median(recomputed);
    std::printf(
        "{\"benchmark\": \"session\", \"tokens\": %d, \"kv_bytes\": %lld, \"resident_ms\": %.3f, "
        "\"restored_ms\": %.3f, \"recomputed_ms\": %.3f, \"recomputed_over_restored\": %.2f, "
        "\"outcome\": \"%s\"}\n",
        length, static_cast<long long>(KvBytes(length)), kept_ms, back_ms, again_ms,
        again_ms / back_ms, outcome.c_str());
    return true;
  }

 private:
  size_t KvBytes(int32_t length) const {
    return static_cast<size_t>(setup_.kv_layout.block_bytes() / setup_.config.block_size * length);
  }
  Tokens Random(int32_t count) {
    Tokens tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = 3 + static_cast<int32_t>(random_() % 2000);
    return tokens;
  }
  static double FirstTokenMs(const LastReply::Reply& reply) {
    const RequestTimings& at = reply.end.timings;
    return static_cast<double>(at.first_token_ns - at.arrival_ns) * 1e-6;
  }
  LastReply::Reply Generate(std::unique_ptr<Request> request) {
    request->id = ++last_id_;
    request->sampling.max_tokens = kOutputTokens;
    request->sampling.row.temperature = 0;
    request->arrival_ns = SteadyNowNs();
    CHECK(engine_->Submit(std::move(request)).ok());
    return sink_.Take();
  }
  // The whole conversation as a prompt that is not cached.
  std::unique_ptr<Request> AsPlain(int32_t length, const Tokens& text) {
    CutTo(length);
    const SessionTransfer known =
        RunSession(*engine_, kName, SessionOperation::BeginExport()).transfer;
    RunSession(*engine_, kName, SessionOperation::EndExport{known.turn});
    auto request = std::make_unique<Request>();
    request->prompt = known.tokens;
    request->prompt.insert(request->prompt.end(), text.begin(), text.end());
    request->bypass_cache = true;
    return request;
  }
  void CutTo(int32_t length) {
    const auto cut = ChangeSession(*engine_, kName, SessionOperation::Truncate{length});
    CHECK(cut.ok());
  }
  void Offload() {
    const auto asked = ChangeSession(*engine_, kName, SessionOperation::Offload());
    CHECK(asked.ok());
    AwaitSession(*engine_, kName,
                 [](const SessionInfo& info) { return info.tiers.device_tokens == 0; });
  }

  EngineSetup setup_;
  LastReply sink_;
  std::unique_ptr<Engine> engine_;
  std::mt19937 random_{1};
  RequestId last_id_ = 0;
};

}  // namespace
}  // namespace quire

int main() {
  quire::Bench bench;
  for (const int32_t length : {256, 1024, 3072}) {
    if (!bench.Measure(length)) {
      std::fprintf(stderr, "answers differ at %d tokens\n", length);
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}
