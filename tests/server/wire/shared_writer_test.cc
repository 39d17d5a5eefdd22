// Several members on one call: order, one write in flight, the end, and what a failure does.
// Covers server/wire/shared_writer.cc, server/wire/stream_member.cc
#include "server/wire/shared_writer.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes what it is told to write, and writes nothing.
class FakeCall final : public SharedWriter::Call {
 public:
  void BeginWrite(const grpc::ByteBuffer* message) override { sent.push_back(Text(*message)); }
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override {
    if (last != nullptr) sent.push_back(Text(*last) + " and end");
    end = status;
    ++ends;
  }
  void Reset() override { ++resets; }

  std::vector<std::string> sent;
  std::optional<absl::Status> end;
  int ends = 0;
  int resets = 0;

 private:
  static std::string Text(const grpc::ByteBuffer& bytes) {
    grpc::ByteBuffer copy = bytes;
    grpc::Slice slice;
    EXPECT_TRUE(copy.DumpToSingleSlice(&slice).ok());
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
};

// Leaves when it is cancelled, unless a message of it is on its way.
class FakeMember final : public SharedWriter::Member {
 public:
  explicit FakeMember(SharedWriter* writer) : writer_(writer) {}
  void Say(const std::string& text) {
    writing_ = true;
    writer_->Write(this, text);
  }
  void Written(bool ok) override {
    writing_ = false;
    written.push_back(ok);
    if (cancels > 0) Leave(std::nullopt);
  }
  void Cancel() override {
    ++cancels;
    if (!writing_) Leave(std::nullopt);
  }
  void Released() override { ++releases; }
  void Leave(const std::optional<std::string>& last) {
    if (left_) return;
    left_ = true;
    writer_->Leave(this, last);
  }

  std::vector<bool> written;
  int cancels = 0;
  int releases = 0;

 private:
  SharedWriter* const writer_;
  bool writing_ = false;
  bool left_ = false;
};

class SharedWriterTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeMember> Join() {
    auto member = std::make_shared<FakeMember>(&writer_);
    EXPECT_TRUE(writer_.Join(member));
    return member;
  }

  FakeCall call_;
  SharedWriter writer_{&call_};
};

TEST_F(SharedWriterTest, OneWriteIsInFlightAndTheOthersKeepTheirOrder) {
  const auto a = Join();
  const auto b = Join();
  const auto c = Join();
  a->Say("a1");
  b->Say("b1");
  c->Say("c1");
  EXPECT_THAT(call_.sent, ElementsAre("a1"));
  writer_.WriteDone(true);
  EXPECT_THAT(a->written, ElementsAre(true));
  a->Say("a2");
  writer_.WriteDone(true);
  writer_.WriteDone(true);
  writer_.WriteDone(true);
  EXPECT_THAT(call_.sent, ElementsAre("a1", "b1", "c1", "a2"));
  EXPECT_FALSE(call_.end.has_value());
}

TEST_F(SharedWriterTest, TheLastMessageOfTheLastMemberEndsAClosedCall) {
  const auto a = Join();
  const auto b = Join();
  writer_.Close(absl::OkStatus());
  a->Leave("a ends");
  EXPECT_FALSE(call_.end.has_value());
  writer_.WriteDone(true);
  EXPECT_EQ(a->releases, 1);
  b->Leave("b ends");
  EXPECT_THAT(call_.sent, ElementsAre("a ends", "b ends and end"));
  EXPECT_TRUE(call_.end->ok());
  writer_.Done();
  EXPECT_EQ(b->releases, 1);
  EXPECT_EQ(call_.ends, 1);
}

TEST_F(SharedWriterTest, AnOpenCallOutlivesItsMembersAndEndsWhenItIsClosed) {
  Join()->Leave("bye");
  writer_.WriteDone(true);
  EXPECT_FALSE(call_.end.has_value());
  writer_.Close(absl::OkStatus());
  EXPECT_TRUE(call_.end->ok());
  EXPECT_FALSE(writer_.Join(std::make_shared<FakeMember>(&writer_)));
}

TEST_F(SharedWriterTest, AnErrorDropsTheQueueAndCancelsTheMembers) {
  const auto a = Join();
  const auto b = Join();
  const auto c = Join();
  a->Say("a1");
  b->Say("b1");  // queued
  writer_.Close(absl::InternalError("broken"));
  EXPECT_THAT(b->written, ElementsAre(false));
  EXPECT_EQ(c->cancels, 1);
  EXPECT_FALSE(call_.end.has_value()) << "a has a write in flight and has not left";
  writer_.WriteDone(true);
  EXPECT_EQ(call_.end->message(), "broken");
  EXPECT_THAT(call_.sent, ElementsAre("a1"));
  writer_.Done();
  EXPECT_EQ(a->releases + b->releases + c->releases, 3);
}

TEST_F(SharedWriterTest, AnErrorDoesNotWaitForAWriteThatIsStuck) {
  const auto a = Join();
  a->Say("a1");
  writer_.Close(absl::InternalError("broken"));
  a->Leave(std::nullopt);  // a stalled stream ends while its write is in flight
  EXPECT_EQ(call_.end->message(), "broken");
}

TEST_F(SharedWriterTest, AFailedWriteFailsAllThatFollow) {
  const auto a = Join();
  const auto b = Join();
  a->Say("a1");
  b->Say("b1");
  writer_.WriteDone(false);
  EXPECT_THAT(a->written, ElementsAre(false));
  EXPECT_THAT(b->written, ElementsAre(false));
  a->Say("a2");
  EXPECT_THAT(a->written, ElementsAre(false, false));
  EXPECT_THAT(call_.sent, ElementsAre("a1"));
}

TEST_F(SharedWriterTest, OnlyTheFirstErrorCounts) {
  const auto a = Join();
  a->Say("a1");
  writer_.Close(absl::OkStatus());
  writer_.Close(absl::InternalError("first"));
  writer_.Close(absl::InternalError("second"));
  writer_.WriteDone(true);
  EXPECT_EQ(call_.end->message(), "first");
  EXPECT_EQ(call_.ends, 1);
}

TEST_F(SharedWriterTest, CancelReachesMembersThatHaveNotLeft) {
  const auto a = Join();
  const auto b = Join();
  a->Leave(std::nullopt);
  writer_.Cancel();
  EXPECT_EQ(a->cancels, 0);
  EXPECT_EQ(b->cancels, 1);
  EXPECT_THAT(call_.sent, IsEmpty());
}

}  // namespace
}  // namespace quire
