// Starts quire-server with the bundled demo model and measures it as a user sees it: exec to READY,
// tokens per second of one stream, and of sixteen at once. Refuses to report a speed when the
// sixteen streams' tokens differ from the same requests' tokens alone.
//
//   demo_bench build/release/bin/quire-server
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "quire/v1/inference.grpc.pb.h"

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kStreams = 16;
constexpr int kTokens = 256;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "demo_bench: %s\n", message.c_str());
  std::exit(1);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    Fail("no free port on the loopback interface");
  }
  close(fd);
  return ntohs(address.sin_port);
}

// The server process; killed and reaped on destruction.
class ServerProcess {
 public:
  explicit ServerProcess(const std::string& binary) : port_(FreePort()) {
    const std::string port = std::to_string(port_);
    const std::string metrics_port = std::to_string(FreePort());
    std::vector<const char*> argv = {
        binary.c_str(),       "--port",      port.c_str(), "--metrics-port",
        metrics_port.c_str(), "--log-level", "error",      nullptr};
    start_ = Clock::now();
    if (posix_spawn(&pid_, binary.c_str(), nullptr, nullptr, const_cast<char**>(argv.data()),
                    environ) != 0) {
      Fail("cannot start " + binary);
    }
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Seconds from exec until the port accepts: the server listens only once it can serve.
  double AwaitReady() {
    const sockaddr_in address = Loopback(port_);
    while (SecondsSince(start_) < 60) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      const int refused = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
      close(fd);
      if (refused == 0) return SecondsSince(start_);
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) Fail("the server ended before it was ready");
      usleep(500);
    }
    Fail("the server was not ready within 60 s");
  }
  int port() const { return port_; }

 private:
  int port_;
  pid_t pid_ = 0;
  Clock::time_point start_;
};

struct Generation {
  std::vector<uint32_t> tokens;
  double first_token_seconds = 0;
  double total_seconds = 0;
};

Generation Generate(quire::v1::Inference::Stub& stub, int index) {
  quire::v1::GenerateRequest request;
  request.set_text("Once upon a time, number " + std::to_string(index) + ",");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(kTokens);
  request.mutable_stop()->set_ignore_eos(true);
  Generation generation;
  const Clock::time_point start = Clock::now();
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, request);
  quire::v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (!response.has_tokens()) continue;
    if (generation.tokens.empty()) generation.first_token_seconds = SecondsSince(start);
    for (uint32_t id : response.tokens().token_ids()) generation.tokens.push_back(id);
  }
  generation.total_seconds = SecondsSince(start);
  if (const grpc::Status status = reader->Finish(); !status.ok()) Fail(status.error_message());
  if (generation.tokens.size() != kTokens) Fail("a stream ended early");
  return generation;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) Fail("usage: demo_bench PATH/TO/quire-server");
  ServerProcess server(argv[1]);
  const double ready_seconds = server.AwaitReady();
  auto stub = quire::v1::Inference::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server.port()), grpc::InsecureChannelCredentials()));
  Generate(*stub, 0);  // connects, and touches every page once

  std::vector<Generation> alone;
  double alone_seconds = 0;
  for (int i = 0; i < kStreams; ++i) {
    alone.push_back(Generate(*stub, i));
    alone_seconds += alone.back().total_seconds;
  }
  std::vector<Generation> together(kStreams);
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] { together[i] = Generate(*stub, i); });
  }
  for (std::thread& thread : threads) thread.join();
  const double together_seconds = SecondsSince(start);
  for (int i = 0; i < kStreams; ++i) {
    if (together[i].tokens != alone[i].tokens) Fail("tokens depend on the batch");
  }
  const double alone_rate = kStreams * kTokens / alone_seconds;
  const double together_rate = kStreams * kTokens / together_seconds;
  std::printf(
      "{\"bench\": \"demo\", \"exec_to_ready_seconds\": %.4f, \"alone_tokens_per_second\": %.1f, "
      "\"alone_first_token_seconds\": %.4f, \"together_tokens_per_second\": %.1f, "
      "\"streams\": %d, \"together_over_alone\": %.2f}\n",
      ready_seconds, alone_rate, alone.back().first_token_seconds, together_rate, kStreams,
      together_rate / alone_rate);
}
