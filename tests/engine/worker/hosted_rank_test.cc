// A rank of a follower, as its leader sees it: the worker's messages pass, and malformed bytes from
// the leader ends the rank with a reason and never the process.
#include "engine/worker/remote/hosted_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "engine/worker/process/plan_codec.h"

namespace quire {
namespace {

using testing::HasSubstr;

constexpr int32_t kRank = 1, kRanks = 2;

WorkerOrder Order(bool start) {
  WorkerOrder order{.start = start, .device = "steady"};
  order.spec.model_dir = QUIRE_SOURCE_DIR "/models/demo";
  order.spec.tp = {.rank = kRank, .size = kRanks};
  order.spec.kv_layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 16};
  order.spec.num_blocks = 65;
  order.spec.num_pages = 4;
  order.spec.worker = {.max_num_seqs = 8,
                       .max_num_batched_tokens = 64,
                       .max_model_len = 1024,
                       .vocab_size = 2048,
                       .steps_in_flight = 2};
  return order;
}

// Both ends of a connection.
std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> Connected() {
  const Descriptor listener = *ListenForNodes("127.0.0.1:0", false);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  // The port lies behind the family, in network order.
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&address) + 2;
  auto link = *ConnectToLeader("127.0.0.1:" + std::to_string(bytes[0] * 256 + bytes[1]), false);
  return {std::make_unique<Connection>(Descriptor(accept(listener.get(), nullptr, nullptr))),
          std::move(link)};
}

class HostedRankTest : public testing::Test {
 protected:
  void SetUp() override {
    std::tie(leader_, link_) = Connected();
    leader_->set_max_bytes(Frame::kMaxStartBytes);
    ASSERT_TRUE(pages_.Renew("leader").ok());
    thread_ = std::thread([this] {
      HostedRank rank(*link_, pages_,
                      {.program = QUIRE_BINARY_DIR "/tests/engine/worker/scripted_worker",
                       .grant = {.rank = kRank, .local_ranks = 1, .ranks = kRanks},
                       .local = 0});
      status_ = rank.Run(stop_.get());
    });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    leader_.reset();
    thread_.join();
  }

  void Send(FrameKind kind, const std::string& bytes) {
    ASSERT_TRUE(leader_->Send(kind, bytes).ok());
  }
  // The next frame of a kind; counters and output pass by.
  std::string Await(FrameKind kind) {
    for (;;) {
      const auto frame = leader_->Await();
      if (!frame.ok()) return std::string(frame.status().message());
      if (frame->kind == kind) return frame->bytes;
      EXPECT_TRUE(frame->kind == FrameKind::kCounters || frame->kind == FrameKind::kOutput);
    }
  }
  template <typename T>
  T AwaitMessage() {
    const auto message = DecodeMessage(Await(FrameKind::kMessage));
    EXPECT_TRUE(message.ok()) << message.status();
    return std::get<T>(*message);
  }
  // The rank's own word on why it ended.
  std::string Reason() {
    const std::string reason(AwaitMessage<WorkerFailure>().status.message());
    thread_.join();
    EXPECT_EQ(reason, status_.message());
    return reason;
  }

  void StartWorker() {
    Send(FrameKind::kMessage, EncodeOrder(Order(false)));
    EXPECT_EQ(AwaitMessage<DeviceFacts>().kind, "steady");
    Send(FrameKind::kMessage, EncodeOrder(Order(true)));
    EXPECT_EQ(AwaitMessage<WorkerReport>().description, "scripted");
  }
  static std::string Encoded(const StepPlan& plan) {
    std::vector<std::byte> bytes(
        static_cast<size_t>(StepShapeOf(Order(true).spec).bounds.PlanBytes()));
    bytes.resize(EncodePlan(plan, bytes));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static std::string Job(int32_t count, BlockCopy copy) {
    CopyJobMessage job{.job = 1, .count = count};
    job.copies[0] = copy;
    return {reinterpret_cast<const char*>(&job), sizeof job};
  }

  std::unique_ptr<Connection> leader_, link_;
  StoredPages pages_;
  Descriptor stop_{eventfd(0, EFD_CLOEXEC)};
  absl::Status status_;
  std::thread thread_;
};

TEST_F(HostedRankTest, PlansAndResultsPass) {
  StartWorker();
  StepPlan plan;
  for (plan.step = 1; plan.step <= 5; ++plan.step) {
    Send(FrameKind::kPlan, Encoded(plan));
    const std::string bytes = Await(FrameKind::kResult);
    StepResult result;
    ASSERT_TRUE(DecodeResult(std::as_bytes(std::span(bytes)), result));
    EXPECT_EQ(result.step, plan.step);
  }
  plan.shutdown = true;
  Send(FrameKind::kPlan, Encoded(plan));
  EXPECT_EQ(Await(FrameKind::kEnded), "");
  thread_.join();
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(HostedRankTest, ALoadOfAPageThatWasNeverStoredIsRefused) {
  StartWorker();
  Send(FrameKind::kLoadJob, Job(1, {.block = 3, .page = 2}));
  const std::string bytes = Await(FrameKind::kLoadAck);
  CopyAck ack;
  ASSERT_EQ(bytes.size(), sizeof ack);
  std::memcpy(&ack, bytes.data(), sizeof ack);
  EXPECT_EQ(ack.job, 1u);
  EXPECT_EQ(ack.status, CopyStatus::kCorrupt);
  EXPECT_EQ(ack.num_good, 0);
}

TEST_F(HostedRankTest, ADeadWorkerIsReportedWithItsEnd) {
  WorkerOrder order = Order(false);
  order.device = "dies-describing";
  Send(FrameKind::kMessage, EncodeOrder(order));
  EXPECT_THAT(Reason(), HasSubstr("exited with code 7"));
}

TEST_F(HostedRankTest, ANodeThatEndsEndsItsRank) {
  StartWorker();
  const uint64_t one = 1;
  ASSERT_EQ(write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  thread_.join();
  EXPECT_TRUE(absl::IsCancelled(status_));
}

TEST_F(HostedRankTest, AnOrderForAnotherRankIsRefused) {
  WorkerOrder order = Order(false);
  order.spec.tp.rank = 0;
  Send(FrameKind::kMessage, EncodeOrder(order));
  EXPECT_THAT(Reason(), HasSubstr("an unexpected order"));
}

TEST_F(HostedRankTest, AMessageThatIsNoOrderIsRefused) {
  Send(FrameKind::kMessage, R"({"shared":[]})");
  EXPECT_THAT(Reason(), HasSubstr("no order"));
}

TEST_F(HostedRankTest, ImpossibleSizesAreRefused) {
  Send(FrameKind::kMessage, EncodeOrder(Order(false)));
  AwaitMessage<DeviceFacts>();
  WorkerOrder order = Order(true);
  order.spec.kv_layout.num_layers = order.spec.kv_layout.head_dim = 1 << 30;
  Send(FrameKind::kMessage, EncodeOrder(order));
  EXPECT_THAT(Reason(), HasSubstr("impossible sizes"));
}

TEST_F(HostedRankTest, APlanBeforeItsOrderIsRefused) {
  Send(FrameKind::kPlan, "plan");
  EXPECT_THAT(Reason(), HasSubstr("a plan before its order"));
}

TEST_F(HostedRankTest, MorePlansThanStepsInFlightAreRefused) {
  StartWorker();
  // The worker ends at the first, so that it answers none.
  for (int i = 0; i < 8; ++i) Send(FrameKind::kPlan, "no plan at all");
  // The worker's own word may come before the rank's.
  const std::string first(AwaitMessage<WorkerFailure>().status.message());
  thread_.join();
  EXPECT_THAT(first,
              testing::AnyOf(HasSubstr("a plan that does not fit"), HasSubstr("cannot be read")));
}

TEST_F(HostedRankTest, CopiesOutsideTheMemoryAreRefused) {
  StartWorker();
  Send(FrameKind::kStoreJob, Job(1, {.block = 3, .page = 4}));
  EXPECT_THAT(Reason(), HasSubstr("an impossible copy job"));
}

TEST_F(HostedRankTest, CopiesBeyondTheLimitAreRefused) {
  StartWorker();
  Send(FrameKind::kStoreJob, Job(CopyJob::kMaxCopies + 1, {.block = 3, .page = 0}));
  EXPECT_THAT(Reason(), HasSubstr("an impossible copy job"));
}

TEST_F(HostedRankTest, FramesOfTheOtherDirectionAreRefused) {
  Send(FrameKind::kResult, "");
  EXPECT_THAT(Reason(), HasSubstr("does not belong there"));
}

}  // namespace
}  // namespace quire
