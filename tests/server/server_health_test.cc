// Health follows the engine: off everywhere while it hangs, on when it moves again. A dead worker
// group ends the server with its own exit code.
// Covers server/wire/engine_trouble.cc
#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/worker/in_process_transport.h"
#include "field/kserve.grpc.pb.h"
#include "field/openengine.grpc.pb.h"
#include "field/vllm_engine.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/server.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using HealthResponse = grpc::health::v1::HealthCheckResponse;

// The status code of a page of the admin port.
int StatusOf(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
  char reply[16] = {};
  int status = 0;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0 &&
      recv(fd, reply, sizeof reply - 1, MSG_WAITALL) > 12) {
    status = std::stoi(reply + 9);
  }
  close(fd);
  return status;
}

// Waits until the page has this status; false after a minute.
bool BecomesStatus(int port, const std::string& path, int status) {
  const int64_t give_up_ns = SteadyNowNs() + 60'000'000'000;
  while (SteadyNowNs() < give_up_ns) {
    if (StatusOf(port, path) == status) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Forwards all calls, until it reports that the workers died.
class MortalTransport final : public Transport {
 public:
  MortalTransport(std::unique_ptr<Transport> inner, const std::atomic<bool>* dead)
      : inner_(std::move(inner)), dead_(dead) {}
  void SetWake(WakeEvent* wake) override { inner_->SetWake(wake); }
  StepPlan* NextSlot() override { return inner_->NextSlot(); }
  void Publish() override { inner_->Publish(); }
  const StepResult* Poll() override { return forgotten_ ? nullptr : inner_->Poll(); }
  const StepResult* ResultOf(int32_t rank) override { return inner_->ResultOf(rank); }
  void Release() override { inner_->Release(); }
  int in_flight() const override { return forgotten_ ? 0 : inner_->in_flight(); }
  bool Submit(const CopyJob& job) override { return inner_->Submit(job); }
  bool PollCopy(CopyAck& ack) override { return inner_->PollCopy(ack); }
  int32_t ready_pages() const override { return inner_->ready_pages(); }
  std::string fault() const override { return dead_->load() ? "rank 0 died" : ""; }
  bool Recover() override {
    forgotten_ = true;
    return false;
  }
  bool recovering() override { return false; }

 private:
  std::unique_ptr<Transport> inner_;
  const std::atomic<bool>* const dead_;
  bool forgotten_ = false;
};

// A server of the demo model whose worker samples the same token forever, as the gate allows.
class RunningServer {
 public:
  RunningServer()
      : server_(DemoSettings(), SteadyNowNs(),
                [this](const EngineSetup&, std::string*) { return StartScript(); }) {
    const auto error = server_.Start();
    EXPECT_FALSE(error) << error->status;
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_.port()),
                                   grpc::InsecureChannelCredentials());
    thread_ = std::thread([this] { code_ = server_.Run(); });
  }
  ~RunningServer() { End(); }

  // Waits for Run to return.
  ExitCode End() {
    gate.Allow(-1);
    server_.RequestDrain();
    if (thread_.joinable()) thread_.join();
    return code_;
  }
  // Waits for Run to return by itself.
  ExitCode Await() {
    thread_.join();
    return code_;
  }
  int admin_port() const { return server_.metrics_port(); }
  std::unique_ptr<v1::Inference::Stub> Stub() { return v1::Inference::NewStub(channel_); }
  HealthResponse::ServingStatus Health() {
    grpc::ClientContext context;
    HealthResponse response;
    const auto stub = grpc::health::v1::Health::NewStub(channel_);
    EXPECT_TRUE(stub->Check(&context, {}, &response).ok());
    return response.status();
  }

  // The answers of other protocols' health calls: 1 of a server that is ready, 0 of another.
  std::vector<int> OthersReady() {
    std::vector<int> ready;
    const auto kserve = inference::GRPCInferenceService::NewStub(channel_);
    grpc::ClientContext c1, c2, c3, c4;
    inference::ServerReadyResponse server;
    EXPECT_TRUE(kserve->ServerReady(&c1, {}, &server).ok());
    ready.push_back(server.ready());
    inference::ModelReadyRequest of;
    of.set_name("demo");
    inference::ModelReadyResponse model;
    EXPECT_TRUE(kserve->ModelReady(&c2, of, &model).ok());
    ready.push_back(model.ready());
    vllm::grpc::engine::HealthCheckResponse vllm;
    const auto engine = vllm::grpc::engine::VllmEngine::NewStub(channel_);
    EXPECT_TRUE(engine->HealthCheck(&c3, {}, &vllm).ok());
    ready.push_back(vllm.healthy());
    openengine::v1::HealthResponse open;
    EXPECT_TRUE(openengine::v1::Control::NewStub(channel_)->Health(&c4, {}, &open).ok());
    ready.push_back(open.state() == openengine::v1::HEALTH_STATE_READY);
    return ready;
  }

  Gate gate;
  std::atomic<bool> dead{false};

 private:
  static Settings DemoSettings() {
    Settings settings;
    settings.engine.model = QUIRE_SOURCE_DIR "/models/demo";
    settings.server.front.port = 0;
    settings.server.metrics_port = 0;
    settings.server.hung_after_seconds = 2;
    return settings;
  }
  std::unique_ptr<Transport> StartScript() {
    std::vector<std::unique_ptr<StepRunner>> runners;
    runners.push_back(
        std::make_unique<ScriptRunner>(std::vector<int32_t>{100}, &gate, uint64_t{0}));
    return std::make_unique<MortalTransport>(
        std::make_unique<InProcessTransport>(std::move(runners), 2), &dead);
  }

  Server server_;
  std::shared_ptr<grpc::Channel> channel_;
  ExitCode code_ = ExitCode::kForced;
  std::thread thread_;
};

v1::GenerateRequest Endless() {
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_stop()->set_max_tokens(1000);
  return request;
}

TEST(ServerHealthTest, HealthIsOffWhileTheEngineHangs) {
  RunningServer server;
  EXPECT_EQ(server.Health(), HealthResponse::SERVING);
  EXPECT_EQ(StatusOf(server.admin_port(), "/livez"), 200);
  EXPECT_EQ(StatusOf(server.admin_port(), "/health"), 200);
  EXPECT_EQ(StatusOf(server.admin_port(), "/version"), 200);
  EXPECT_EQ(server.OthersReady(), std::vector<int>({1, 1, 1, 1}));
  server.gate.Allow(0);
  grpc::ClientContext context;
  const auto stub = server.Stub();
  const auto stream = stub->Generate(&context, Endless());

  EXPECT_TRUE(BecomesStatus(server.admin_port(), "/livez", 503));
  EXPECT_EQ(StatusOf(server.admin_port(), "/readyz"), 503);
  EXPECT_EQ(StatusOf(server.admin_port(), "/health"), 503);
  EXPECT_EQ(StatusOf(server.admin_port(), "/startupz"), 200);
  EXPECT_EQ(StatusOf(server.admin_port(), "/metrics"), 200);
  EXPECT_EQ(server.Health(), HealthResponse::NOT_SERVING);
  EXPECT_EQ(server.OthersReady(), std::vector<int>({0, 0, 0, 0}));

  server.gate.Allow(-1);
  EXPECT_TRUE(BecomesStatus(server.admin_port(), "/readyz", 200));
  EXPECT_EQ(server.Health(), HealthResponse::SERVING);
  EXPECT_EQ(server.OthersReady(), std::vector<int>({1, 1, 1, 1}));
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(server.End(), ExitCode::kOk);
}

TEST(ServerHealthTest, DeadWorkersEndTheServerAndItsStreams) {
  RunningServer server;
  grpc::ClientContext context;
  const auto stub = server.Stub();
  const auto stream = stub->Generate(&context, Endless());
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Read(&response));
  server.dead = true;
  EXPECT_EQ(server.Await(), ExitCode::kDevice);
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

}  // namespace
}  // namespace quire
