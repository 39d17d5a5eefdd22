// The gate between launches and pinning. Only lower bounds of time are tested.
//
// Covers engine/worker/copy/launch_gate.h, engine/worker/copy/pool_copies.cc
#include "engine/worker/copy/launch_gate.h"

#include <memory>

#include "engine/base/clock.h"
#include "gtest/gtest.h"
#include "tests/engine/worker/copy_pool.h"

namespace quire {
namespace {

constexpr int64_t kPatienceNs = std::chrono::nanoseconds(LaunchGate::kPatience).count();

// Notes when it was asked to pin its first piece: one page.
class PinningCopier final : public BlockCopier {
 public:
  explicit PinningCopier(int64_t& first_ns) : first_ns_(first_ns) {}
  size_t pin_bytes() const override { return 1; }
  bool Pin(void*, size_t) override {
    if (first_ns_ == 0) first_ns_ = SteadyNowNs();
    return true;
  }
  uint64_t Begin(Direction, std::span<const Copy>, size_t) override { return 0; }
  void WaitFor(Direction, uint64_t) override {}

 private:
  int64_t& first_ns_;
};

TEST(LaunchGate, IsOpenUnlessAStepIsLaunched) {
  LaunchGate gate;
  EXPECT_TRUE(gate.Await());
  for (int step = 0; step < 2; ++step) {
    { const LaunchGate::Launching launching(gate); }
    EXPECT_TRUE(gate.Await());
  }
}

TEST(LaunchGate, GivesUpOnALaunchThatNeverEnds) {
  LaunchGate gate;
  const LaunchGate::Launching launching(gate);
  const int64_t begin_ns = SteadyNowNs();
  EXPECT_FALSE(gate.Await());
  EXPECT_GE(SteadyNowNs() - begin_ns, kPatienceNs);
}

TEST(LaunchGate, APageIsPinnedAfterTheLaunchOrThePatience) {
  int64_t pinned_ns = 0;
  testing::CopyPool pool(/*checksum=*/false);
  const auto copies = pool.Copies(std::make_unique<PinningCopier>(pinned_ns));
  const LaunchGate::Launching launching(copies->launch_gate());
  const int64_t begin_ns = SteadyNowNs();
  EXPECT_EQ(copies->PrepareNext(), 1);
  EXPECT_GE(pinned_ns - begin_ns, kPatienceNs);
}

}  // namespace
}  // namespace quire
