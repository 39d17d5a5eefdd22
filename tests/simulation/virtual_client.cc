// Frames are read by actions on the agenda.
#include "tests/simulation/virtual_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace quire {
namespace {

// Between the end of a call and the moment when its outlet is gone.
constexpr int64_t kCloseNs = 50'000;

}  // namespace

VirtualClient::VirtualClient(Agenda& agenda, Dice& dice, const ClientManners& manners,
                             ExpectedOutcome expected,
                             std::function<void(VirtualClient&)> on_closed)
    : agenda_(agenda),
      dice_(dice),
      manners_(manners),
      expected_(std::move(expected)),
      on_closed_(std::move(on_closed)) {}

void VirtualClient::Begin(std::shared_ptr<GenerationStream> stream) {
  stream_ = std::move(stream);
  const int64_t deadline_ns = manners_.keeps_time ? manners_.deadline_ns : VirtualThreads::kNever;
  const int64_t first_ns = std::min(manners_.leaves_ns, deadline_ns);
  if (first_ns != VirtualThreads::kNever) agenda_.At(first_ns, [this] { Leave(); });
}

void VirtualClient::WriteAccepted(const AcceptedFrame& accepted) {
  EXPECT_FALSE(accepted_ || ended_);
  EXPECT_NE(manners_.shape, GenerationStream::Shape::kUnary);
  EXPECT_GT(accepted.prompt_tokens, 0);
  accepted_ = true;
  Write();
}

void VirtualClient::WriteTokens(const OutputDelta& delta, const OutputOptions&) {
  EXPECT_TRUE(accepted_ && !ended_);
  EXPECT_EQ(manners_.shape, GenerationStream::Shape::kStream);
  EXPECT_GT(delta.tokens, 0u);
  Take(delta);
  Write();
}

void VirtualClient::WriteEnd(const EndFrame& end) {
  EXPECT_FALSE(ended_) << "a second end";
  EXPECT_FALSE(writing_);
  Take(end.rest);
  finish_ = end.finish;
  EXPECT_EQ(tokens_, expected_.tokens);
  EXPECT_EQ(end.finish.reason, expected_.reason);
  EXPECT_EQ(end.finish.usage.completion_tokens, static_cast<int32_t>(tokens_.size()));
  End();
}

void VirtualClient::Fail(const absl::Status& status) {
  EXPECT_FALSE(ended_) << "a second end";
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(status.message().empty());
  status_ = status;
  failed_ns_ = agenda_.now_ns();
  End();
}

void VirtualClient::Take(const OutputDelta& delta) {
  EXPECT_EQ(delta.token_ids.size(), delta.tokens);
  for (const uint32_t id : delta.token_ids) tokens_.push_back(static_cast<int32_t>(id));
  EXPECT_EQ(delta.cumulative, tokens_.size());
  const bool right = tokens_.size() <= expected_.tokens.size() &&
                     std::equal(tokens_.begin(), tokens_.end(), expected_.tokens.begin());
  EXPECT_TRUE(right) << "after " << tokens_.size() << " tokens of " << expected_.tokens.size();
}

absl::Status VirtualClient::CheckSize(int64_t bytes) const {
  if (bytes <= manners_.max_reply_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError("too long for one message");
}

void VirtualClient::Write() {
  EXPECT_FALSE(writing_) << "two writes in flight";
  writing_ = true;
  ++frames_;
  if (stuck()) return;
  agenda_.In(manners_.read_ns + dice_.Between(0, manners_.read_ns),
             [this] { FinishWrite(!gone_); });
}

void VirtualClient::FinishWrite(bool ok) {
  if (!std::exchange(writing_, false)) return;
  stream_->WriteDone(ok);
}

// A peer that does not read does not get the status either: the call stays until it is reset.
void VirtualClient::End() {
  ended_ = true;
  if (!stuck() || gone_) agenda_.In(kCloseNs, [this] { Close(); });
}

void VirtualClient::Reset() {
  agenda_.In(kCloseNs, [this] { Close(); });
}

void VirtualClient::Leave() {
  if (closed_) return;
  gone_ = true;
  stream_->Cancelled();
  agenda_.In(kCloseNs, [this] {
    if (closed_) return;
    FinishWrite(false);
    if (ended_) agenda_.In(kCloseNs, [this] { Close(); });
  });
}

void VirtualClient::Close() {
  if (closed_) return;
  EXPECT_TRUE(ended_);
  closed_ = true;
  if (std::exchange(writing_, false)) stream_->WriteDone(false);
  stream_->Closed();
  stream_.reset();
  on_closed_(*this);
}

}  // namespace quire
