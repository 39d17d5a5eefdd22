// Mutated requests to the admin port, over real sockets: each gets an answer of HTTP or the end of
// its connection, and the port lives on.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "server/admin/admin_http.h"
#include "tests/fuzz/mutator.h"

namespace quire {
namespace {

constexpr int kRounds = 8;
constexpr int kAtOnce = 120;  // below AdminOptions::max_connections

// A connection on which the bytes were sent, and no more will come.
int Send(int port, const std::string& bytes) {
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{20, 0};  // far longer than any answer takes: a hang becomes a failure
  setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(peer, SHUT_WR);
  return peer;
}

// The port's answer until it closes; "timeout" if it does not.
std::string Receive(int peer) {
  std::string answer;
  char chunk[4096];
  ssize_t got = 0;
  while ((got = recv(peer, chunk, sizeof chunk, 0)) > 0) {
    answer.append(chunk, static_cast<size_t>(got));
  }
  if (got < 0 && errno != ECONNRESET) answer = "timeout";
  close(peer);
  return answer;
}

TEST(AdminHttpFuzzTest, EachRequestIsAnsweredOrItsConnectionEnds) {
  std::atomic<int> pages{0};
  auto port = AdminHttp::Start({.idle_timeout_seconds = 1}, [&pages](std::string_view path) {
    ++pages;
    return path == "/livez" ? AdminPage{.body = "ok\n"} : AdminPage{.status = 404};
  });
  ASSERT_TRUE(port.ok()) << port.status();
  Mutator mutator({"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD /livez HTTP/1.0\r\n\r\n",
                   "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
                   "GET /%2e%2e/?a=b&c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"
                   "0\r\n\r\n"},
                  {"\r\n", "\n", " ", "/", "//", "%00", "%", "HTTP/1.1", "HTTP/9.9", ":", "GET",
                   "Content-Length: -1", "Content-Length: 99999999999999999999", "\xFF",
                   std::string(1, '\0'), std::string(3000, 'a'), "Expect: 100-continue\r\n",
                   "Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFF\r\n"},
                  41);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::string> requests;
    std::vector<int> peers;
    while (peers.size() < kAtOnce) {
      requests.push_back(mutator.Next());
      peers.push_back(Send((*port)->port(), requests.back()));
    }
    for (size_t i = 0; i < peers.size(); ++i) {
      const std::string answer = Receive(peers[i]);
      EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.")) << requests[i] << "\n" << answer;
    }
  }
  EXPECT_GT(pages.load(), kAtOnce);
  const int peer = Send((*port)->port(), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Receive(peer).starts_with("HTTP/1.1 200"));
}

}  // namespace
}  // namespace quire
