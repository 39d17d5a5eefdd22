// The head of a frame, written and read.
#include "engine/worker/remote/frame.h"

namespace quire {
namespace {

constexpr size_t kLengthAt = 4;
// Bytes before `begin_` are removed once they are as many, so that a byte is moved seldom.
constexpr size_t kMaxDeadBytes = size_t{1} << 16;

}  // namespace

std::string FrameHead(FrameKind kind, size_t bytes) {
  std::string head(kFrameHeadBytes, '\0');
  head[0] = static_cast<char>(kind);
  for (size_t i = 0; i < 4; ++i) head[kLengthAt + i] = static_cast<char>(bytes >> (8 * i));
  return head;
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  const std::string_view left = std::string_view(bytes_).substr(begin_);
  if (left.size() < kFrameHeadBytes) return std::nullopt;
  const auto kind = static_cast<uint8_t>(left[0]);
  const bool known = kind >= static_cast<uint8_t>(FrameKind::kHello) &&
                     kind <= static_cast<uint8_t>(FrameKind::kEnded) &&
                     left.substr(1, kLengthAt - 1) == std::string_view("\0\0\0", 3);
  if (!known) return absl::InvalidArgumentError("bytes that are no frame");
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) {
    length |= size_t{static_cast<unsigned char>(left[kLengthAt + i])} << (8 * i);
  }
  if (length > max_bytes_) {
    return absl::InvalidArgumentError("a frame of " + std::to_string(length) + " bytes; at most " +
                                      std::to_string(max_bytes_));
  }
  if (left.size() < kFrameHeadBytes + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(kind), std::string(left.substr(kFrameHeadBytes, length))};
  begin_ += kFrameHeadBytes + length;
  if (begin_ == bytes_.size() || begin_ >= kMaxDeadBytes) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

}  // namespace quire
