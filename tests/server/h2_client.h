// H2Client: hand-written HTTP/2 over one TCP connection, for behaviour that gRPC clients lack:
// reset streams at full speed, never read, ignore SETTINGS, vanish. Implements the parts of RFC
// 9113 that these tests need.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quire {

class H2Client {
 public:
  // Connects and sends the preface and SETTINGS (with this initial window for the server's data).
  explicit H2Client(int port, uint32_t initial_window = 65535);
  static constexpr uint32_t kWidestWindow = 0x7FFFFFFF;
  ~H2Client();  // closes

  bool connected() const { return fd_ >= 0; }
  // These append frames; Send writes them.
  // HEADERS that open a gRPC call of `path`; returns the stream's id.
  uint32_t AddHeaders(const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& extra = {});
  void AddMessage(uint32_t stream, const std::string& message);  // DATA, END_STREAM
  void AddReset(uint32_t stream);                                // RST_STREAM CANCEL
  // Opens the connection's window, which SETTINGS cannot change, to its maximum.
  void AddWideWindow();
  // Writes the frames. With `drain`, reads and drops the server's data meanwhile, so that neither
  // side blocks forever. False if the server has closed the connection.
  bool Send(bool drain);
  // Reads and drops data until `bytes` have arrived; false if the connection closes first.
  bool Read(int64_t bytes);
  // Reads until the server's data hold `text`, and returns them all; gives up after ten seconds
  // without data.
  std::string ReadUntil(const std::string& text);
  // Closes with RST instead of FIN.
  void Vanish();

 private:
  void AddFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);
  bool DrainOnce();

  int fd_ = -1;
  uint32_t next_stream_ = 1;
  std::string out_;
};

}  // namespace quire
