// A line ends at a line feed; a carriage return before it is white space.
#include "server/jobs/line_reader.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

constexpr int64_t kPieceBytes = 64 << 10;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

}  // namespace

std::optional<InputLine> LineSplitter::Take(std::string_view* bytes) {
  if (bytes->empty()) return std::nullopt;
  if (!std::exchange(begun_, true)) ++number_;
  const size_t end = bytes->find('\n');
  const std::string_view part = bytes->substr(0, end);
  const size_t room = max_line_bytes_ - std::min(max_line_bytes_, text_.size());
  text_ += part.substr(0, room);
  too_long_ = too_long_ || part.size() > room;
  blank_ = blank_ && std::ranges::all_of(part, IsBlank);
  if (end == std::string_view::npos) {
    *bytes = {};
    return std::nullopt;
  }
  bytes->remove_prefix(end + 1);
  return EndLine();
}

std::optional<InputLine> LineSplitter::Finish() { return begun_ ? EndLine() : std::nullopt; }

std::optional<InputLine> LineSplitter::EndLine() {
  begun_ = false;
  InputLine line{number_, std::exchange(text_, {}), std::exchange(too_long_, false)};
  if (std::exchange(blank_, true)) return std::nullopt;
  return line;
}

LineReader::LineReader(std::unique_ptr<DiskFile> file, int64_t size, size_t max_line_bytes)
    : file_(std::move(file)), size_(size), splitter_(max_line_bytes) {}

absl::StatusOr<std::optional<InputLine>> LineReader::Next() {
  while (!ended_) {
    std::string_view left = std::string_view(piece_).substr(used_);
    if (left.empty() && read_ == size_) {
      ended_ = true;
      return splitter_.Finish();
    }
    if (left.empty()) {
      piece_.resize(static_cast<size_t>(std::min(kPieceBytes, size_ - read_)));
      used_ = 0;
      RETURN_IF_ERROR(file_->Read(read_, std::as_writable_bytes(std::span(piece_))));
      read_ += static_cast<int64_t>(piece_.size());
      continue;
    }
    std::optional<InputLine> line = splitter_.Take(&left);
    used_ = piece_.size() - left.size();
    if (line.has_value()) return line;
  }
  return std::nullopt;
}

}  // namespace quire
