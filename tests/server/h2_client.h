// H2Client: HTTP/2 by hand over one TCP connection, for what a gRPC client would never do: reset
// streams as fast as it can, never read, ignore SETTINGS, vanish. Only what these tests need of RFC
// 9113.
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
  // Appends frames to what Send will write.
  // HEADERS that open a gRPC call of `path`; returns the stream's id.
  uint32_t AddHeaders(const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& extra = {});
  void AddMessage(uint32_t stream, const std::string& message);  // DATA, END_STREAM
  void AddReset(uint32_t stream);                                // RST_STREAM CANCEL
  // Opens the connection's window, which no SETTINGS can, as wide as it goes.
  void AddWideWindow();
  // Writes what was added; reads and drops what the server says meanwhile if `drain`, so that
  // neither side blocks for ever. False when the server has closed the connection.
  bool Send(bool drain);
  // Reads and drops for as long as the connection lives or until `bytes` have come; false when
  // closed.
  bool Read(int64_t bytes);
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
