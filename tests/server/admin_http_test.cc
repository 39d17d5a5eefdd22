// The admin port over real sockets: pages, methods, hostile requests, stalled and trickling peers.
#include "server/admin/admin_http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "server/front/listen_address.h"

namespace quire {
namespace {

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{20, 0};  // far longer than any answer takes: a hang becomes a failure
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Client() {
    if (fd_ >= 0) close(fd_);
  }
  void Send(const std::string& text) { send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Everything until the server closes; "timeout" if it does not.
  std::string ReadAll() {
    std::string all;
    char chunk[65536];
    while (true) {
      const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
      if (got > 0) all.append(chunk, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
      if (got < 0) return "timeout";
    }
  }

 private:
  int fd_;
};

std::string Ask(int port, const std::string& request) {
  Client client(port);
  client.Send(request);
  return client.ReadAll();
}

std::string Get(int port, const std::string& path) {
  return Ask(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}

std::unique_ptr<AdminHttp> StartPort(AdminOptions options = {}) {
  auto port = AdminHttp::Start(options, [](std::string_view path) -> AdminPage {
    if (path == "/big") return {.body = std::string(1 << 20, 'x')};
    if (path == "/livez") return {.body = "ok\n"};
    if (path == "/page") return {.security_policy = "default-src 'none'", .body = "page\n"};
    if (path == "/readyz") return {.status = 503, .body = "draining\n"};
    return {.status = 404, .body = "not here\n"};
  });
  EXPECT_TRUE(port.ok()) << port.status();
  return port.ok() ? *std::move(port) : nullptr;
}

TEST(AdminHttpTest, ServesPagesWithTheirStatus) {
  const auto port = StartPort();
  const std::string live = Get(port->port(), "/livez");
  EXPECT_EQ(live.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_TRUE(live.ends_with("\r\n\r\nok\n")) << live;
  EXPECT_EQ(Get(port->port(), "/readyz").substr(9, 3), "503");
  EXPECT_EQ(Get(port->port(), "/nothing").substr(9, 3), "404");
  EXPECT_EQ(Get(port->port(), "/livez?verbose=1").substr(9, 3), "200");
  EXPECT_GT(Get(port->port(), "/big").size(), size_t{1} << 20);
}

TEST(AdminHttpTest, SendsTheSecurityPolicyOfAPageThatHasOne) {
  const auto port = StartPort();
  EXPECT_NE(Get(port->port(), "/page").find("\r\nContent-Security-Policy: default-src 'none'\r\n"),
            std::string::npos);
  EXPECT_EQ(Get(port->port(), "/livez").find("Content-Security-Policy"), std::string::npos);
}

TEST(AdminHttpTest, HeadHasNoBodyAndOtherMethodsAreRefused) {
  const auto port = StartPort();
  const std::string head = Ask(port->port(), "HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.substr(9, 3), "200");
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"}) {
    const std::string reply =
        Ask(port->port(),
            std::string(method) + " /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_EQ(reply.substr(9, 3), "405") << method << ": " << reply;
    EXPECT_NE(reply.find("Allow: GET, HEAD"), std::string::npos) << reply;
  }
}

TEST(AdminHttpTest, HostileRequestsGetAnErrorAndLeaveThePortUsable) {
  const auto port = StartPort();
  const std::string requests[] = {
      "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'a') + "\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + "\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET\r\n\r\n",
      "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
  };
  for (const std::string& request : requests) {
    const std::string reply = Ask(port->port(), request);
    EXPECT_NE(reply, "timeout") << request.substr(0, 20);
    EXPECT_EQ(reply.find("HTTP/1.1 200"), std::string::npos) << reply;
  }
  EXPECT_EQ(Get(port->port(), "/livez").substr(9, 3), "200");
}

TEST(AdminHttpTest, TenStalledConnectionsDelayNoRequest) {
  const auto port = StartPort();
  std::vector<Client> stalled;
  for (int i = 0; i < 10; ++i) {
    stalled.emplace_back(port->port());
    // No request, half a request, and a whole request whose answer is never read.
    if (i % 3 == 1) stalled.back().Send("GET /livez HTTP/1.1\r\nHos");
    if (i % 3 == 2) stalled.back().Send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Get(port->port(), "/livez").substr(9, 3), "200");
}

TEST(AdminHttpTest, ServesAgainWhenSilentConnectionsTimeOut) {
  const auto port = StartPort({.max_connections = 4, .idle_timeout_seconds = 1});
  std::vector<Client> silent;
  for (int i = 0; i < 4; ++i) silent.emplace_back(port->port());
  EXPECT_EQ(Get(port->port(), "/livez").substr(9, 3), "200");
}

// A peer that sends a byte from time to time is never idle, so only its age ends its connection.
// Told to end, libmicrohttpd takes no response any more, and still wrote the header of the one that
// a malformed request gets.
TEST(AdminHttpTest, MalformedRequestsWhileThePortEndsAreHarmless) {
  for (int i = 0; i < 300; ++i) {
    std::unique_ptr<AdminHttp> port = StartPort();
    std::vector<Client> clients;
    for (int client = 0; client < 100; ++client) clients.emplace_back(port->port());
    std::atomic<int> sent = 0;
    std::thread sender([&] {
      for (Client& client : clients) {
        client.Send("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n");
        ++sent;
      }
    });
    while (sent < i % 100) std::this_thread::yield();
    port.reset();
    sender.join();
  }
}

TEST(AdminHttpTest, MaximumAgeEndsATricklingConnection) {
  const auto port = StartPort({.idle_timeout_seconds = 600, .max_age_seconds = 15});
  Client trickler(port->port());
  trickler.Send("GET /li");
  EXPECT_EQ(Get(port->port(), "/livez").substr(9, 3),
            "200");  // the port knows the trickling connection
  port->CloseStale(SteadyNowNs());
  trickler.Send("vez HTTP/1.1\r\nHost: x\r\n");
  port->CloseStale(SteadyNowNs() + 16'000'000'000);
  EXPECT_NE(trickler.ReadAll(), "timeout");
}

TEST(AdminHttpTest, APortInUseIsNamedWithItsFlag) {
  const auto first = StartPort();
  const auto second = AdminHttp::Start({.port = first->port()}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  const std::string message(second.status().message());
  EXPECT_NE(message.find(std::to_string(first->port())), std::string::npos) << message;
  EXPECT_NE(message.find("--metrics-port"), std::string::npos) << message;
}

TEST(ListenAddressTest, LoopbackMeansOnlyThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.8.7", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "", "127.0.0.1.example.org",
                           "128.0.0.1", "127.1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(ListenAddressTest, UnusableAddressesHaveAReason) {
  EXPECT_FALSE(CheckTcpFree("203.0.113.1", 0, "--port").ok());  // reserved for documentation
  EXPECT_FALSE(CheckTcpFree("no such host", 0, "--port").ok());
  EXPECT_TRUE(CheckTcpFree("127.0.0.1", 0, "--port").ok());
}

TEST(ListenAddressTest, AUnixSocketIsInUseOnlyWhileAProcessListens) {
  const std::string path = testing::TempDir() + "quire_listen_test.sock";
  unlink(path.c_str());
  EXPECT_TRUE(CheckUnixSocketFree(path).ok());
  const int server = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(server, 1), 0);
  EXPECT_FALSE(CheckUnixSocketFree(path).ok());
  close(server);
  EXPECT_TRUE(CheckUnixSocketFree(path).ok());  // stale
  unlink(path.c_str());
  fclose(fopen(path.c_str(), "w"));
  EXPECT_FALSE(CheckUnixSocketFree(path).ok());  // a file, not a socket
  unlink(path.c_str());
  EXPECT_FALSE(CheckUnixSocketFree("/tmp/" + std::string(200, 'x')).ok());
}

}  // namespace
}  // namespace quire
