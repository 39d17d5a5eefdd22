// Every Transport: order, depth, joining of ranks, divergence, and shutdown with work in flight;
// with ranks as threads, and with ranks behind shared memory.
#include "engine/worker/transport.h"

#include <semaphore>

#include "engine/worker/process/restarting_transport.h"
#include "engine/worker/rank_mismatch.h"
#include "gmock/gmock.h"
#include "tests/engine/worker/transport_ranks.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::RankKinds;
using testing::Runners;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Answers each plan with its step number and a token per sampling row, after `gate` lets it
// through.
class GatedRunner : public StepRunner {
 public:
  // The biases make a rank disagree with the others.
  GatedRunner(std::counting_semaphore<>* gate, uint64_t checksum_bias, int32_t token_bias = 0)
      : gate_(gate), checksum_bias_(checksum_bias), token_bias_(token_bias) {}
  void Run(const StepPlan& plan, StepResult& result) override {
    if (gate_ != nullptr) gate_->acquire();
    result.step = plan.step;
    result.checksum = plan.step + checksum_bias_;
    result.samples.clear();
    for (const RowWork& work : plan.work) {
      if (work.sample) result.samples.push_back({work.row, {.token = work.start + token_bias_}});
    }
  }

 private:
  std::counting_semaphore<>* gate_;
  uint64_t checksum_bias_;
  int32_t token_bias_;
};

template <typename Ranks>
class TransportTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::counting_semaphore<>*>& gates, uint64_t bias_of_last = 0,
             int32_t token_bias_of_last = 0) {
    Runners runners;
    for (size_t i = 0; i < gates.size(); ++i) {
      const bool last = i + 1 == gates.size();
      runners.push_back(std::make_unique<GatedRunner>(gates[i], last ? bias_of_last : 0,
                                                      last ? token_bias_of_last : 0));
    }
    transport = ranks.Start(std::move(runners), /*depth=*/2);
    transport->SetWake(&wake);
  }
  void Publish(uint64_t step) {
    StepPlan* plan = transport->NextSlot();
    ASSERT_NE(plan, nullptr);
    plan->Clear();
    plan->step = step;
    plan->work = {{.row = 3, .start = static_cast<int32_t>(step % 50), .count = 1, .sample = 1},
                  {.row = 1, .start = 0, .count = 2, .sample = 0}};
    transport->Publish();
  }
  // Null once the transport has a fault.
  const StepResult* Await() {
    const StepResult* result = transport->Poll();
    while (result == nullptr && transport->fault().empty()) {
      wake.Wait(kNever);
      result = transport->Poll();
    }
    return result;
  }

  std::counting_semaphore<> gate{0}, other_gate{0};
  WakeEvent wake;  // outlives the transport
  Ranks ranks;     // joined after it
  std::unique_ptr<Transport> transport;
};

TYPED_TEST_SUITE(TransportTest, RankKinds);

TYPED_TEST(TransportTest, ResultsComeInStepOrderOverManySteps) {
  this->Start({nullptr, nullptr});
  uint64_t published = 0;
  for (uint64_t retired = 1; retired <= 5000; ++retired) {
    while (this->transport->NextSlot() != nullptr) this->Publish(++published);
    const StepResult* result = this->Await();
    ASSERT_NE(result, nullptr) << this->transport->fault();
    EXPECT_EQ(result->step, retired);
    ASSERT_EQ(result->samples.size(), 1u);
    EXPECT_EQ(result->samples[0].row, 3);
    EXPECT_EQ(result->samples[0].result.token, static_cast<int32_t>(retired % 50));
    this->transport->Release();
  }
  EXPECT_EQ(this->transport->in_flight(), static_cast<int>(published - 5000));
}

TYPED_TEST(TransportTest, NoSlotWhileDepthStepsAreInFlight) {
  this->Start({&this->gate});
  this->Publish(1);
  this->Publish(2);
  EXPECT_EQ(this->transport->NextSlot(), nullptr);
  EXPECT_EQ(this->transport->Poll(), nullptr);
  this->gate.release();
  EXPECT_EQ(this->Await()->step, 1u);
  EXPECT_EQ(this->transport->NextSlot(), nullptr) << "a result in use still holds its slot";
  this->transport->Release();
  EXPECT_NE(this->transport->NextSlot(), nullptr);
  this->gate.release();
}

TYPED_TEST(TransportTest, ResultIsVisibleOnlyWhenEveryRankHasFinished) {
  this->Start({&this->gate, &this->other_gate});
  this->Publish(1);
  this->gate.release();
  this->wake.Wait(kNever);  // rank 0 has reported
  EXPECT_EQ(this->transport->Poll(), nullptr);
  this->other_gate.release();
  EXPECT_EQ(this->Await()->step, 1u);
}

TYPED_TEST(TransportTest, RanksThatDisagreeAreAFault) {
  this->Start({nullptr, nullptr}, /*bias_of_last=*/1);
  this->Publish(1);
  this->Await();
  EXPECT_EQ(this->transport->fault(),
            "ranks disagree at step 1: rank 0 and rank 1 sampled the same rows and tokens in "
            "different graphs (checksums 1 and 2)");
  EXPECT_EQ(this->transport->rank_mismatches(), 1u);
  this->Publish(2);
  EXPECT_EQ(this->transport->in_flight(), 2);
  EXPECT_FALSE(this->transport->Recover());
  EXPECT_FALSE(this->transport->recovering());
  EXPECT_EQ(this->transport->in_flight(), 0);
  EXPECT_EQ(this->transport->Poll(), nullptr);
}

TYPED_TEST(TransportTest, AMismatchNamesTheRowAndBothTokens) {
  this->Start({nullptr, nullptr, nullptr}, /*bias_of_last=*/1, /*token_bias_of_last=*/7);
  this->Publish(1);
  this->Await();
  EXPECT_EQ(this->transport->fault(),
            "ranks disagree at step 1: row 3 drew token 1 on rank 0 and token 8 on rank 2");
  this->Await();
  EXPECT_EQ(this->transport->rank_mismatches(), 1u) << "a step counts once";
}

TEST(RankMismatchTest, NamesTheFirstDifference) {
  const StepResult first{.step = 4, .samples = {{1, {.token = 10}}, {2, {.token = 20}}}};
  StepResult other = first;
  other.samples[1].row = 3;
  EXPECT_EQ(DescribeMismatch(first, 5, other),
            "ranks disagree at step 4: sample 1 is of row 2 on rank 0 and of row 3 on rank 5");
  other.samples.pop_back();
  EXPECT_EQ(DescribeMismatch(first, 5, other),
            "ranks disagree at step 4: rank 0 sampled 2 rows and rank 5 1");
  other.step = 6;
  EXPECT_EQ(DescribeMismatch(first, 5, other),
            "ranks disagree at step 4: rank 0 ran step 4 and rank 5 step 6");
}

TYPED_TEST(TransportTest, DestructionWithUnpolledStepsEndsAllRanks) {
  this->gate.release(2);
  this->Start({&this->gate, nullptr});
  this->Publish(1);
  this->Publish(2);
  this->transport.reset();  // hangs or crashes if a rank is left behind
}

// Malformed results of a rank; the server survives each with a fault.
class CorruptRankTest : public ::testing::Test {
 protected:
  CorruptRankTest() {
    const StepMemory::Shape shape{
        .ranks = 1,
        .depth = 2,
        .bounds = {.max_rows = 4, .max_tokens = 64, .num_blocks = 16, .vocab_size = 100},
        .late_masks = true};
    memory_ = std::make_shared<StepMemory>(
        *StepMemory::Create(*SharedMemory::Create("quire steps"), shape));
    transport_ = std::make_unique<SharedMemoryTransport>(
        memory_, std::make_shared<std::atomic<uint32_t>>(0), /*vocab_size=*/100, memory_->masks());
    StepPlan* plan = transport_->NextSlot();
    plan->step = 1;
    plan->work = {{.row = 3, .start = 0, .count = 1, .sample = 1}};
    transport_->Publish();
  }
  std::string FaultAfter(const StepResult& result, int times = 1) {
    SharedRing ring = memory_->results(0);
    EncodeResult(result, ring.slot(0));
    for (int i = 0; i < times; ++i) ring.Publish();
    EXPECT_EQ(transport_->Poll(), nullptr);
    EXPECT_EQ(transport_->Poll(), nullptr);
    return transport_->fault();
  }
  // Answers step 1, and publishes step 2 with a draw whose mask comes late.
  void PublishLateDraw(uint32_t entry) {
    StepPlan* plan = transport_->NextSlot();
    plan->step = 2;
    plan->masks = {{.row = 3, .is_late = 1, .begin = entry}};
    transport_->Publish();
    EXPECT_EQ(FaultOfToken(1), "");
    transport_->Release();
  }
  std::string FaultOfDraw() { return FaultOfToken(2); }
  std::shared_ptr<StepMemory> memory_;
  std::unique_ptr<SharedMemoryTransport> transport_;

 private:
  // Of a rank that drew a token of the vocabulary in step `step`.
  std::string FaultOfToken(uint64_t step) {
    SharedRing ring = memory_->results(0);
    EncodeResult({.step = step, .samples = {{3, {.token = 5}}}}, ring.slot(step - 1));
    ring.Publish();
    transport_->Poll();
    return transport_->fault();
  }
};

StepResult Answer(uint64_t step, int32_t row, int32_t token) {
  StepResult result{.step = step};
  result.samples = {{row, {.token = token}}};
  return result;
}

TEST_F(CorruptRankTest, ResultOfAnotherStep) {
  EXPECT_THAT(FaultAfter(Answer(2, 3, 5)), HasSubstr("result of step 2 at step 1"));
}
TEST_F(CorruptRankTest, SampleOfAnotherRow) {
  EXPECT_THAT(FaultAfter(Answer(1, 2, 5)), HasSubstr("wrong row"));
}
TEST_F(CorruptRankTest, TokensOutsideTheVocabulary) {
  EXPECT_THAT(FaultAfter(Answer(1, 3, 100)), HasSubstr("outside the vocabulary"));
}
TEST_F(CorruptRankTest, NegativeTokens) {
  EXPECT_THAT(FaultAfter(Answer(1, 3, -1)), HasSubstr("outside the vocabulary"));
}
TEST_F(CorruptRankTest, TooFewSamples) {
  EXPECT_THAT(FaultAfter({.step = 1}), HasSubstr("0 samples instead of 1"));
}
TEST_F(CorruptRankTest, MoreStepsThanPublished) {
  EXPECT_THAT(FaultAfter(Answer(1, 3, 5), /*times=*/2), HasSubstr("finished step 2 of 1"));
}
TEST_F(CorruptRankTest, RandomBytes) {
  for (std::byte& byte : memory_->results(0).slot(0)) byte = std::byte{0xA5};
  memory_->results(0).Publish();
  EXPECT_EQ(transport_->Poll(), nullptr);
  EXPECT_THAT(transport_->fault(), HasSubstr("no result"));
}
TEST_F(CorruptRankTest, ANonfiniteRowHasNoToken) {
  StepResult result = Answer(1, 3, -77);
  result.samples[0].result.nonfinite = 1;
  EncodeResult(result, memory_->results(0).slot(0));
  memory_->results(0).Publish();
  EXPECT_NE(transport_->Poll(), nullptr) << transport_->fault();
}

TEST_F(CorruptRankTest, ADrawWithItsMaskDoesNotMissIt) {
  StepResult result = Answer(1, 3, 0);
  result.samples[0].result.nonfinite = SampleResult::kNoMask;
  EXPECT_THAT(FaultAfter(result), HasSubstr("misses a mask, which it has at step 1"));
}
TEST_F(CorruptRankTest, ADrawMayMissAMaskThatComesLate) {
  StepPlan* plan = transport_->NextSlot();
  plan->step = 2;
  plan->masks = {{.row = 3, .is_late = 1}};
  transport_->Publish();
  StepResult result = Answer(1, 3, 0);
  for (uint64_t step = 0; step < 2; ++step) {
    result.step = step + 1;
    result.samples[0].result.nonfinite = step == 0 ? 0 : SampleResult::kNoMask;
    EncodeResult(result, memory_->results(0).slot(step));
    memory_->results(0).Publish();
    ASSERT_NE(transport_->Poll(), nullptr) << transport_->fault();
    transport_->Release();
  }
}
TEST_F(CorruptRankTest, ADrawHasATokenOnceItsLateMaskIsPosted) {
  PublishLateDraw(/*entry=*/2);
  transport_->masks()->Post(2, 2, 12, std::vector<uint32_t>{1, 2, 3, 4});
  EXPECT_EQ(FaultOfDraw(), "");
}
TEST_F(CorruptRankTest, ADrawHasNoTokenBeforeItsLateMaskIsPosted) {
  PublishLateDraw(/*entry=*/2);
  transport_->masks()->Post(2, 1, 12, std::vector<uint32_t>{1, 2, 3, 4});  // another draw's
  EXPECT_THAT(FaultOfDraw(), HasSubstr("drawn with a mask that it has not at step 2"));
}
TEST_F(CorruptRankTest, ADrawHasNoTokenWhileItSleeps) {
  PublishLateDraw(/*entry=*/2);
  *transport_->masks()->word(2, 2) = kMaskSleeping;
  EXPECT_THAT(FaultOfDraw(), HasSubstr("drawn with a mask that it has not at step 2"));
}
TEST_F(CorruptRankTest, ADrawHasNoTokenOfAWithheldMask) {
  PublishLateDraw(/*entry=*/2);
  transport_->masks()->Withhold(2, 2);
  EXPECT_THAT(FaultOfDraw(), HasSubstr("drawn with a mask that it has not at step 2"));
}
TEST_F(CorruptRankTest, BothEndsSeeOneBoardOfMasks) {
  ASSERT_NE(transport_->masks(), nullptr);
  transport_->masks()->Post(7, 3, 12, std::vector<uint32_t>{1, 2, 3, 4});
  const MaskBoard of_rank = memory_->masks();
  EXPECT_EQ(*of_rank.word(7, 3), 12u);
  EXPECT_EQ(of_rank.mask(7, 3)[3], 4u);
  EXPECT_EQ(*of_rank.word(6, 3), kMaskAwaited);
}

// Groups that live and die as a test says.
class ScriptedGroups : public WorkerGroups {
 public:
  // A group that records the calls of the transport.
  class Group : public Transport {
   public:
    void SetWake(WakeEvent*) override {}
    StepPlan* NextSlot() override { return &plan; }
    void Publish() override { ++published; }
    const StepResult* Poll() override { return published > 0 ? &result : nullptr; }
    const StepResult* ResultOf(int32_t rank) override { return rank == 0 ? Poll() : nullptr; }
    void Release() override { --published; }
    int in_flight() const override { return published; }
    bool Submit(const CopyJob&) override { return ++copies > 0; }
    bool PollCopy(CopyAck& ack) override {
      ack.job = 1;
      return copies > 0 && copies-- > 0;
    }
    int32_t ready_pages() const override { return 0; }
    std::string fault() const override { return own_fault; }
    bool Recover() override { return false; }
    uint64_t rank_mismatches() const override { return mismatches; }
    bool recovering() override { return false; }
    StepPlan plan;
    StepResult result;
    int published = 0;
    int copies = 0;
    uint64_t mismatches = 0;
    std::string own_fault;
  };

  void SetWake(WakeEvent*) override {}
  std::unique_ptr<Transport> Take() override {
    if (next != nullptr) fault.clear();
    return std::move(next);
  }
  std::string Fault() override { return fault; }
  std::string End() override { return end; }
  void Condemn(const std::string& why) override { condemned = why; }
  Group* Offer() {
    auto group = std::make_unique<Group>();
    Group* const raw = group.get();
    next = std::move(group);
    return raw;
  }
  std::unique_ptr<Transport> next;
  std::string fault, end, condemned;
};

class RestartingTransportTest : public ::testing::Test {
 protected:
  RestartingTransportTest() {
    auto groups = std::make_unique<ScriptedGroups>();
    groups_ = groups.get();
    first_ = groups_->Offer();
    transport_ = std::make_unique<RestartingTransport>(std::move(groups));
    transport_->Publish();
    transport_->Publish();
  }
  ScriptedGroups* groups_;
  ScriptedGroups::Group* first_;
  std::unique_ptr<RestartingTransport> transport_;
};

TEST_F(RestartingTransportTest, ForgetsADeadGroupAndTakesTheNext) {
  EXPECT_EQ(transport_->in_flight(), 2);
  EXPECT_EQ(transport_->fault(), "");
  groups_->fault = "it died";
  EXPECT_EQ(transport_->fault(), "it died");
  CopyAck ack;
  EXPECT_TRUE(transport_->Submit({}));
  EXPECT_TRUE(transport_->Submit({}));
  EXPECT_TRUE(transport_->PollCopy(ack));
  EXPECT_TRUE(transport_->Recover());
  EXPECT_EQ(groups_->condemned, "");
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(transport_->Submit({}));
    EXPECT_FALSE(transport_->PollCopy(ack));
    EXPECT_TRUE(transport_->recovering());
    EXPECT_EQ(transport_->fault(), "");
    EXPECT_EQ(transport_->NextSlot(), nullptr);
    EXPECT_EQ(transport_->Poll(), nullptr);
    EXPECT_EQ(transport_->in_flight(), 0);
  }
  ScriptedGroups::Group* const second = groups_->Offer();
  EXPECT_FALSE(transport_->recovering());
  EXPECT_EQ(transport_->NextSlot(), &second->plan);
  EXPECT_FALSE(transport_->PollCopy(ack));
  EXPECT_TRUE(transport_->Submit({}));
  EXPECT_EQ(transport_->fault(), "");
}

TEST_F(RestartingTransportTest, AGroupWithWrongResultsIsCondemned) {
  first_->own_fault = "ranks sampled different tokens";
  EXPECT_EQ(transport_->fault(), "ranks sampled different tokens");
  EXPECT_TRUE(transport_->Recover());
  EXPECT_EQ(groups_->condemned, "ranks sampled different tokens");
  EXPECT_EQ(transport_->fault(), "");
}

TEST_F(RestartingTransportTest, MismatchesOfAllGroupsAreCounted) {
  first_->mismatches = 1;
  EXPECT_EQ(transport_->rank_mismatches(), 1u);
  first_->own_fault = "ranks disagree";
  EXPECT_TRUE(transport_->Recover());
  EXPECT_EQ(transport_->rank_mismatches(), 1u);
  groups_->Offer()->mismatches = 2;
  EXPECT_FALSE(transport_->recovering());
  EXPECT_EQ(transport_->rank_mismatches(), 3u);
}

TEST_F(RestartingTransportTest, TheEndIsAFinalFault) {
  groups_->fault = groups_->end = "it died too often";
  EXPECT_EQ(transport_->fault(), "it died too often");
  EXPECT_FALSE(transport_->Recover());
  EXPECT_FALSE(transport_->recovering());
  EXPECT_EQ(transport_->fault(), "it died too often");
  EXPECT_EQ(transport_->in_flight(), 0);
}

TEST_F(RestartingTransportTest, TheEndMayComeWhileRecovering) {
  groups_->fault = "it died";
  EXPECT_TRUE(transport_->Recover());
  EXPECT_TRUE(transport_->recovering());
  groups_->end = "no other could be started";
  EXPECT_FALSE(transport_->recovering());
  EXPECT_EQ(transport_->fault(), "no other could be started");
  EXPECT_FALSE(transport_->Recover());
}

TEST(RankLoopTest, MalformedPlansEndTheRank) {
  const StepMemory::Shape shape{.ranks = 1, .depth = 1, .bounds = {1, 1, 1}};
  StepMemory memory = *StepMemory::Create(*SharedMemory::Create("quire steps"), shape);
  memory.plans().Publish();
  std::atomic<uint32_t> bell{0};
  RunPipeline pipeline(std::make_unique<GatedRunner>(nullptr, 0), 1);
  EXPECT_EQ(RankLoop(memory, bell, pipeline, {}).Run().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace quire
