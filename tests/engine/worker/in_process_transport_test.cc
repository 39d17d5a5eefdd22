// InProcessTransport: order, depth, joining of ranks, divergence, and shutdown with work in flight.
#include "engine/worker/in_process_transport.h"

#include <semaphore>

#include "gtest/gtest.h"

namespace quire {
namespace {

// Answers each plan with its step number, after `gate` lets it through.
class GatedRunner : public StepRunner {
 public:
  GatedRunner(std::counting_semaphore<>* gate, uint64_t checksum_bias)
      : gate_(gate), checksum_bias_(checksum_bias) {}
  void Run(const StepPlan& plan, StepResult& result) override {
    if (gate_ != nullptr) gate_->acquire();
    result.step = plan.step;
    result.checksum = plan.step + checksum_bias_;
    result.samples.clear();
  }

 private:
  std::counting_semaphore<>* gate_;
  uint64_t checksum_bias_;
};

struct Group {
  explicit Group(std::vector<std::counting_semaphore<>*> gates, uint64_t bias_of_last = 0,
                 int depth = 2) {
    std::vector<std::unique_ptr<StepRunner>> runners;
    for (size_t i = 0; i < gates.size(); ++i) {
      runners.push_back(
          std::make_unique<GatedRunner>(gates[i], i + 1 == gates.size() ? bias_of_last : 0));
    }
    transport = std::make_unique<InProcessTransport>(std::move(runners), depth);
    transport->SetWake(&wake);
  }
  void Publish(uint64_t step) {
    StepPlan* plan = transport->NextSlot();
    ASSERT_NE(plan, nullptr);
    plan->Clear();
    plan->step = step;
    transport->Publish();
  }
  const StepResult* Await() {
    const StepResult* result = transport->Poll();
    while (result == nullptr) {
      wake.Wait(std::numeric_limits<int64_t>::max());
      result = transport->Poll();
    }
    return result;
  }
  WakeEvent wake;  // outlives the transport
  std::unique_ptr<InProcessTransport> transport;
};

TEST(InProcessTransportTest, ResultsComeInStepOrderOverManySteps) {
  Group group({nullptr, nullptr});
  uint64_t published = 0;
  for (uint64_t retired = 1; retired <= 5000; ++retired) {
    while (group.transport->NextSlot() != nullptr) group.Publish(++published);
    EXPECT_EQ(group.Await()->step, retired);
    group.transport->Release();
  }
  EXPECT_EQ(group.transport->in_flight(), static_cast<int>(published - 5000));
}

TEST(InProcessTransportTest, NoSlotWhileDepthStepsAreInFlight) {
  std::counting_semaphore<> gate(0);
  Group group({&gate});
  group.Publish(1);
  group.Publish(2);
  EXPECT_EQ(group.transport->NextSlot(), nullptr);
  EXPECT_EQ(group.transport->Poll(), nullptr);
  gate.release();
  EXPECT_EQ(group.Await()->step, 1u);
  EXPECT_EQ(group.transport->NextSlot(), nullptr) << "a result in use still holds its slot";
  group.transport->Release();
  EXPECT_NE(group.transport->NextSlot(), nullptr);
  gate.release();
}

TEST(InProcessTransportTest, ResultIsVisibleOnlyWhenEveryRankHasFinished) {
  std::counting_semaphore<> fast(0), slow(0);
  Group group({&fast, &slow});
  group.Publish(1);
  fast.release();
  group.wake.Wait(std::numeric_limits<int64_t>::max());  // rank 0 has reported
  EXPECT_EQ(group.transport->Poll(), nullptr);
  slow.release();
  EXPECT_EQ(group.Await()->step, 1u);
}

TEST(InProcessTransportTest, RanksThatDisagreeAreAFault) {
  Group group({nullptr, nullptr}, /*bias_of_last=*/1);
  group.Publish(1);
  group.Await();
  EXPECT_NE(group.transport->fault().find("step 1"), std::string::npos);
}

TEST(InProcessTransportTest, DestructionWaitsForStepsNobodyPolled) {
  std::counting_semaphore<> gate(2);
  Group group({&gate, nullptr});
  group.Publish(1);
  group.Publish(2);
  group.transport.reset();  // hangs or crashes if a rank thread is left behind
}

}  // namespace
}  // namespace quire
