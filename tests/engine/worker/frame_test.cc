// Frames as they arrive: in any pieces, cut short, or not frames at all.
#include "engine/worker/remote/frame.h"

#include <gtest/gtest.h>

#include <random>

namespace quire {
namespace {

std::string Encoded(const Frame& frame) {
  return FrameHead(frame.kind, frame.bytes.size()) + frame.bytes;
}

const Frame kFrames[] = {{FrameKind::kHello, "hello"},
                         {FrameKind::kEnded, ""},
                         {FrameKind::kPlan, std::string(70'000, 'p')},
                         {FrameKind::kResult, std::string("\0\1\xff", 3)}};

std::string AllEncoded() {
  std::string bytes;
  for (const Frame& frame : kFrames) bytes += Encoded(frame);
  return bytes;
}

TEST(FrameTest, FramesInAnyPiecesAreTheSame) {
  const std::string bytes = AllEncoded();
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{8}, size_t{4096}, bytes.size()}) {
    FrameReader reader(1 << 20);
    std::vector<Frame> got;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.Append(std::string_view(bytes).substr(at, piece));
      for (;;) {
        auto frame = reader.Next();
        ASSERT_TRUE(frame.ok()) << frame.status();
        if (!frame->has_value()) break;
        got.push_back(**std::move(frame));
      }
    }
    EXPECT_TRUE(std::equal(got.begin(), got.end(), std::begin(kFrames), std::end(kFrames)));
  }
}

TEST(FrameTest, ATruncatedFrameIsNoFrame) {
  const std::string bytes = Encoded({FrameKind::kMessage, "some text of a message"});
  for (size_t length = 0; length < bytes.size(); ++length) {
    FrameReader reader(1 << 20);
    reader.Append(std::string_view(bytes).substr(0, length));
    const auto frame = reader.Next();
    ASSERT_TRUE(frame.ok());
    EXPECT_FALSE(frame->has_value()) << length;
  }
}

TEST(FrameTest, AFrameBeyondTheLimitIsRefusedByItsHead) {
  FrameReader reader(100);
  reader.Append(FrameHead(FrameKind::kMessage, 101));
  EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kInvalidArgument);
  FrameReader wide(100);
  wide.set_max_bytes(101);
  wide.Append(FrameHead(FrameKind::kMessage, 101));
  EXPECT_TRUE(wide.Next().ok());
}

TEST(FrameTest, UnknownKindsAndPaddingAreRefused) {
  for (const auto& [at, value] :
       {std::pair<size_t, char>{0, 0}, {0, 16}, {0, '\xff'}, {1, 1}, {2, 1}, {3, 1}}) {
    std::string bytes = Encoded({FrameKind::kHello, "x"});
    bytes[at] = value;
    FrameReader reader(100);
    reader.Append(bytes);
    EXPECT_FALSE(reader.Next().ok()) << at;
  }
}

TEST(FrameTest, RandomBytesNeverGiveMoreThanTheLimit) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    FrameReader reader(64);
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (repeat % 2 == 0 ? 256 : 20));
    reader.Append(bytes);
    for (;;) {
      const auto frame = reader.Next();
      if (!frame.ok() || !frame->has_value()) break;
      EXPECT_LE((*frame)->bytes.size(), 64u);
    }
  }
}

}  // namespace
}  // namespace quire
