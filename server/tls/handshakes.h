// Handshakes: how many TLS handshakes began and how many failed, by reason. gRPC tells of failures
// in its log alone, so this reads the log's messages.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

class Handshakes {
 public:
  enum class Failure : uint8_t {
    kNoCertificate,  // the client sent none, and one is required
    kUntrusted,      // no known authority vouches for the client's certificate, or it has expired
    kPlaintext,      // the client does not speak TLS
    kVersion,        // no version or cipher in common
    kRefused,        // the client refused the server's certificate, by an alert
    kTimeout,        // the client stalled
    kClosed,         // the client closed the connection first, as probes of a port do
    kOther
  };
  static constexpr int kNumFailures = static_cast<int>(Failure::kOther) + 1;

  // The one of this process, because gRPC's log is one of the process too. Any thread.
  static Handshakes& OfProcess();

  // The failure that a line of gRPC's log tells of; nullopt: none.
  static std::optional<Failure> FailureOf(std::string_view file, std::string_view message);
  // The value of the label: "no_certificate", ...
  static const char* Name(Failure failure);

  void Begun() { begun_.fetch_add(1, std::memory_order_relaxed); }
  void Failed(Failure failure) {
    failed_[static_cast<size_t>(failure)].fetch_add(1, std::memory_order_relaxed);
  }
  int64_t begun() const { return begun_.load(std::memory_order_relaxed); }
  int64_t failed(Failure failure) const {
    return failed_[static_cast<size_t>(failure)].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> begun_{0};
  std::array<std::atomic<int64_t>, kNumFailures> failed_{};
};

}  // namespace quire
