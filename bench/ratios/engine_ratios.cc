// Sixteen sequences at once against one alone, on one core with the demo model; and what gRPC
// leaves of the engine's speed, with that model and with a worker whose tokens cost nothing.
#include <grpcpp/grpcpp.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "bench/ratios/ratio.h"
#include "engine/base/clock.h"
#include "engine/engine_setup.h"
#include "engine/engine_workers.h"
#include "kernels/check.h"
#include "quire/v1/inference.grpc.pb.h"
#include "server/grpc_front.h"
#include "server/metrics.h"

namespace quire {
namespace {

constexpr int kStreams = 16;
constexpr int32_t kTokens = 96;

// Keeps the tokens of each request; waits for their ends.
class Collector final : public OutputSink {
 public:
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    for (const TokenEvent& t : tokens) tokens_[t.id % kStreams].push_back(t.token);
    if (finishes.empty()) return;
    std::lock_guard lock(mutex_);
    for (const FinishEvent& f : finishes) CHECK(f.reason == FinishReason::kMaxTokens);
    finished_ += static_cast<int>(finishes.size());
    changed_.notify_all();
  }
  void Expect(int count) {
    std::lock_guard lock(mutex_);
    finished_ = -count;
    for (auto& tokens : tokens_) tokens.clear();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ == 0; });
  }
  const std::vector<int32_t>& tokens(int stream) const { return tokens_[stream]; }

 private:
  std::array<std::vector<int32_t>, kStreams> tokens_;  // by stream; read once Wait has returned
  std::mutex mutex_;
  std::condition_variable changed_;
  int finished_ = 0;
};

// An engine, its sink, and requests that differ by stream and are greedy.
class BareEngine {
 public:
  BareEngine(const SchedulerConfig& scheduler, const EngineLimits& limits,
             std::unique_ptr<Transport> transport)
      : engine_(scheduler, limits, std::move(transport), &sink_) {}

  // Streams [0, count) at once, to their ends.
  void Run(int count, int32_t tokens) {
    sink_.Expect(count);
    for (int i = 0; i < count; ++i) {
      auto request = std::make_unique<Request>();
      request->id = next_++;
      while (static_cast<int>(request->id % kStreams) != i) request->id = next_++;
      request->prompt = {0, 900 + i, 700 + i};
      request->sampling.row.temperature = 0;
      request->sampling.ignore_eos = true;
      request->sampling.max_tokens = tokens;
      request->arrival_ns = SteadyNowNs();
      CHECK(engine_.Submit(std::move(request)).ok());
    }
    sink_.Wait();
    for (int i = 0; i < count; ++i) CHECK_EQ(sink_.tokens(i).size(), static_cast<size_t>(tokens));
  }
  const std::vector<int32_t>& tokens(int stream) const { return sink_.tokens(stream); }

 private:
  Collector sink_;
  Engine engine_;
  RequestId next_ = kStreams;
};

EngineSetup DemoOnOneCore() {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/models/demo";
  config.device = "cpu";
  config.cpu_threads = 1;
  auto setup = PlanEngine(config);
  CHECK(setup.ok());
  return *std::move(setup);
}

std::unique_ptr<Transport> Workers(const EngineSetup& setup) {
  WorkerReport report;
  auto workers = StartThreads(setup, &report);
  CHECK(workers.ok());
  return *std::move(workers);
}

// The same model behind the front end.
class DemoServer {
 public:
  explicit DemoServer(const EngineSetup& setup) {
    auto tokenizer = Tokenizer::Load(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json");
    CHECK(tokenizer.ok());
    model_.name = "demo";
    model_.setup = setup;
    model_.tokenizer = *std::move(tokenizer);
    metrics_ = std::make_unique<ServerMetrics>(model_.name);
    front_ = GrpcFront::Create({.port = 0}, &model_, metrics_.get());
    engine_ = std::make_unique<Engine>(setup.scheduler, setup.limits, Workers(setup), front_.get());
    CHECK(front_->Start(engine_.get()).ok());
    stub_ = v1::Inference::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(front_->port()), grpc::InsecureChannelCredentials()));
  }
  ~DemoServer() {
    front_->Shutdown(5);
    engine_.reset();
  }
  v1::Inference::Stub& stub() { return *stub_; }

 private:
  ServingModel model_;
  std::unique_ptr<ServerMetrics> metrics_;
  std::unique_ptr<GrpcFront> front_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

// Each of the streams on a thread of its own, all tokens counted.
void StreamAll(v1::Inference::Stub& stub) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      v1::GenerateRequest request;
      for (const int id : {0, 900 + i, 700 + i}) request.mutable_token_ids()->add_ids(id);
      request.mutable_sampling()->set_temperature(0);
      request.mutable_stop()->set_max_tokens(kTokens);
      request.mutable_stop()->set_ignore_eos(true);
      grpc::ClientContext context;
      const auto reader = stub.Generate(&context, request);
      v1::GenerateResponse frame;
      int32_t count = 0;
      while (reader->Read(&frame)) count += frame.tokens().token_ids_size();
      CHECK(reader->Finish().ok());
      CHECK_EQ(count, kTokens);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void AddEngineRatios(std::vector<Ratio>* ratios) {
  const EngineSetup setup = DemoOnOneCore();
  BareEngine engine(setup.scheduler, setup.limits, Workers(setup));
  engine.Run(1, kTokens);
  const std::vector<int32_t> alone = engine.tokens(0);
  engine.Run(kStreams, kTokens);
  CHECK(engine.tokens(0) == alone);  // whatever runs beside it
  const auto together = [&] { engine.Run(kStreams, kTokens); };
  ratios->push_back({"sixteen_sequences_over_one",
                     kStreams * TimesFaster(together, [&] { engine.Run(1, kTokens); })});
  DemoServer server(setup);
  ratios->push_back(
      {"grpc_over_engine_alone", TimesFaster([&] { StreamAll(server.stub()); }, together)});
}

}  // namespace quire
