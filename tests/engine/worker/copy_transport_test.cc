// Copies over every Transport: the bytes, the joining of ranks, directions that do not wait for
// each other, malformed acks; with ranks as threads, and with ranks behind shared memory.
// Covers engine/worker/copy/copy_dispatch.cc, engine/worker/copy/copy_engine.cc,
// engine/worker/shm/copy_rings.cc, engine/worker/copy/pool_copies.cc
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "tests/engine/worker/copy_pool.h"
#include "tests/engine/worker/transport_ranks.h"

namespace quire {
namespace {

using testing::CopyPool;
using ::testing::HasSubstr;
using testing::RankKinds;
using testing::Runners;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr CopyDirection kStore = CopyDirection::kStore;
constexpr CopyDirection kLoad = CopyDirection::kLoad;
using CopyRunners = std::vector<std::unique_ptr<CopyRunner>>;

// Runs no steps; delegates copies to a CopyRunner.
class CopyingRunner : public StepRunner {
 public:
  explicit CopyingRunner(std::unique_ptr<CopyRunner> copies) : copies_(std::move(copies)) {}
  void Run(const StepPlan& plan, StepResult& result) override { result = {.step = plan.step}; }
  CopyRunner* copies() override { return copies_.get(); }

 private:
  const std::unique_ptr<CopyRunner> copies_;
};

// Copies that take until their direction's gate lets them through, and end as a test says.
class ScriptedCopies : public CopyRunner {
 public:
  using Script = std::function<Outcome(CopyDirection, int32_t count)>;
  explicit ScriptedCopies(Script script) : script_(std::move(script)) {}
  int64_t block_bytes() const override { return 100; }
  void Begin(CopyDirection direction, std::span<const BlockCopy> copies) override {
    counts_[static_cast<size_t>(direction)].push_back(static_cast<int32_t>(copies.size()));
  }
  Outcome Finish(CopyDirection direction) override {
    std::deque<int32_t>& counts = counts_[static_cast<size_t>(direction)];
    const int32_t count = counts.front();
    counts.pop_front();
    return script_(direction, count);
  }

 private:
  const Script script_;
  std::deque<int32_t> counts_[2];
};

CopyRunner::Outcome Good(CopyDirection, int32_t count) { return {CopyStatus::kOk, count}; }

// A scheduler's side, as far as copies go.
class CopyClient {
 protected:
  // Blocks 1, 2, ... and pages likewise.
  CopyJob Job(CopyDirection direction, int32_t count) {
    CopyJob job{.job = ++submitted, .direction = direction};
    for (int32_t i = 1; i <= count; ++i) job.copies.push_back({i, i});
    return job;
  }
  CopyAck Await() {
    CopyAck ack;
    while (!transport->PollCopy(ack)) {
      if (!transport->fault().empty()) ADD_FAILURE() << transport->fault();
      if (!transport->fault().empty()) return {};
      wake.Wait(kNever);
    }
    return ack;
  }

  WakeEvent wake;  // outlives the transport
  std::unique_ptr<Transport> transport;
  uint64_t submitted = 0;
};

// Fills blocks with patterns and copies at random, up to four jobs in flight, beside a model that
// only knows which pattern is where.
class Program {
 public:
  static constexpr int kRanks = 2;

  Program(uint32_t seed, bool checksum) : random_(seed) {
    for (int rank = 0; rank < kRanks; ++rank) {
      pools_.push_back(std::make_unique<CopyPool>(checksum));
    }
  }
  CopyRunners Copies() {
    CopyRunners copies;
    for (auto& pool : pools_) copies.push_back(pool->Copies());
    return copies;
  }
  size_t in_flight() const { return flying_.size(); }
  uint32_t Random(uint32_t below) { return random_() % below; }

  void FillSome() {
    const auto block = static_cast<int32_t>(1 + Random(CopyPool::kBlocks - 1));
    if (blocks_[block].busy) return;
    blocks_[block].pattern = ++patterns_;
    for (int rank = 0; rank < kRanks; ++rank) {
      pools_[rank]->Fill(block, PatternOf(blocks_[block], rank));
    }
  }
  // A job that may be sent now; without copies if none may.
  CopyJob Propose(uint64_t number) {
    CopyJob job{.job = number, .direction = Random(2) == 0 ? kStore : kLoad};
    const auto same = [&job](const auto& other) { return other.second.direction == job.direction; };
    if (std::count_if(flying_.begin(), flying_.end(), same) == CopyJob::kMaxInFlight) return job;
    for (uint32_t tries = 1 + Random(8); tries > 0; --tries) {
      const BlockCopy copy{static_cast<int32_t>(1 + Random(CopyPool::kBlocks - 1)),
                           static_cast<PageId>(Random(CopyPool::kPages))};
      Place &block = blocks_[copy.block], &page = pages_[copy.page];
      const bool known = (job.direction == kStore ? block : page).pattern > 0;
      if (!known || block.busy || page.busy) continue;
      block.busy = page.busy = true;
      job.copies.push_back(copy);
    }
    if (!job.copies.empty()) flying_[number] = job;
    return job;
  }
  void Retire(const CopyAck& ack) {
    ASSERT_TRUE(flying_.contains(ack.job));
    const CopyJob job = flying_.extract(ack.job).mapped();
    EXPECT_EQ(ack.status, CopyStatus::kOk);
    EXPECT_EQ(ack.num_good, static_cast<int32_t>(job.copies.size()));
    EXPECT_EQ(ack.bytes, kRanks * ack.num_good * pools_[0]->block_bytes());
    for (const BlockCopy& copy : job.copies) {
      Place &block = blocks_[copy.block], &page = pages_[copy.page];
      (job.direction == kStore ? page : block).pattern =
          (job.direction == kStore ? block : page).pattern;
      block.busy = page.busy = false;
    }
  }
  void CheckAll() const {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int32_t block = 0; block < CopyPool::kBlocks; ++block) {
        if (blocks_[block].pattern == 0) continue;
        ASSERT_TRUE(pools_[rank]->Holds(block, PatternOf(blocks_[block], rank))) << block;
      }
      for (PageId page = 0; page < CopyPool::kPages; ++page) {
        if (pages_[page].pattern == 0) continue;
        ASSERT_TRUE(pools_[rank]->PageHolds(page, PatternOf(pages_[page], rank))) << page;
      }
    }
  }

 private:
  struct Place {
    uint32_t pattern = 0;  // 0: not known
    bool busy = false;
  };
  static uint32_t PatternOf(const Place& place, int rank) { return place.pattern * kRanks + rank; }

  std::mt19937 random_;
  std::vector<std::unique_ptr<CopyPool>> pools_;
  std::array<Place, CopyPool::kBlocks> blocks_;
  std::array<Place, CopyPool::kPages> pages_;
  std::map<uint64_t, CopyJob> flying_;
  uint32_t patterns_ = 0;
};

template <typename Ranks>
class CopyTransport : public ::testing::Test, protected CopyClient {
 protected:
  ~CopyTransport() override { transport.reset(); }  // before the ranks are joined
  void Start(CopyRunners copies) {
    Runners runners;
    for (auto& one : copies) runners.push_back(std::make_unique<CopyingRunner>(std::move(one)));
    transport = ranks.Start(std::move(runners), /*depth=*/2);
    transport->SetWake(&wake);
  }
  void Start(const std::vector<ScriptedCopies::Script>& scripts) {
    CopyRunners copies;
    for (const auto& script : scripts) copies.push_back(std::make_unique<ScriptedCopies>(script));
    Start(std::move(copies));
  }
  // Ends the ranks; the memory they used may be freed afterwards.
  void End() {
    transport.reset();
    ranks.Join();
  }
  // A program of two ranks with real pools, from start to end.
  void RunProgram(uint32_t seed, bool checksum);

  Ranks ranks;
};

TYPED_TEST_SUITE(CopyTransport, RankKinds);

TYPED_TEST(CopyTransport, AJobIsAckedWithWhatItDid) {
  this->Start({Good, Good});
  const CopyJob job = this->Job(kStore, 7);
  ASSERT_TRUE(this->transport->Submit(job));
  const CopyAck ack = this->Await();
  EXPECT_EQ(ack.job, job.job);
  EXPECT_EQ(ack.status, CopyStatus::kOk);
  EXPECT_EQ(ack.num_good, 7);
  EXPECT_EQ(ack.bytes, 2 * 7 * 100);
  EXPECT_GE(ack.ns, 0);
  CopyAck none;
  EXPECT_FALSE(this->transport->PollCopy(none));
}

TYPED_TEST(CopyTransport, TheLargestJobAndTheSmallestAndManyOfThem) {
  this->Start({Good});
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, CopyJob::kMaxCopies)));
    ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, 1)));
    EXPECT_EQ(this->Await().num_good, CopyJob::kMaxCopies);
    EXPECT_EQ(this->Await().num_good, 1);
  }
}

TYPED_TEST(CopyTransport, AnAckWaitsForAllRanks) {
  std::counting_semaphore<> first{0}, second{0};
  this->Start({[&](CopyDirection, int32_t count) {
                 return first.acquire(), CopyRunner::Outcome{CopyStatus::kOk, count};
               },
               [&](CopyDirection, int32_t count) {
                 return second.acquire(), CopyRunner::Outcome{CopyStatus::kOk, count};
               }});
  ASSERT_TRUE(this->transport->Submit(this->Job(kStore, 1)));
  first.release();
  this->wake.Wait(kNever);  // rank 0 has said so
  CopyAck ack;
  EXPECT_FALSE(this->transport->PollCopy(ack));
  second.release();
  EXPECT_EQ(this->Await().job, 1u);
}

TYPED_TEST(CopyTransport, ALoadDoesNotWaitForStores) {
  std::counting_semaphore<> gate{0};
  this->Start({[&](CopyDirection direction, int32_t count) {
    if (direction == kStore) gate.acquire();
    return CopyRunner::Outcome{CopyStatus::kOk, count};
  }});
  ASSERT_TRUE(this->transport->Submit(this->Job(kStore, 1)));
  ASSERT_TRUE(this->transport->Submit(this->Job(kStore, 1)));
  ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, 2)));
  EXPECT_EQ(this->Await().job, 3u);
  gate.release(2);
  EXPECT_EQ(this->Await().job, 1u);
  EXPECT_EQ(this->Await().job, 2u);
}

// The status of a job on two ranks.
TYPED_TEST(CopyTransport, TheWorstOfAllRanksCounts) {
  using S = CopyStatus;
  using Outcome = CopyRunner::Outcome;
  struct Case {
    Outcome first[2], second[2];  // by rank
    S status;
    int32_t num_good;
  };
  // Jobs of 10 copies: batches of 5.
  const std::vector<Case> cases = {
      {{{S::kOk, 5}, {S::kOk, 5}}, {{S::kOk, 5}, {S::kOk, 5}}, S::kOk, 10},
      {{{S::kOk, 5}, {S::kOk, 5}}, {{S::kOk, 5}, {S::kCorrupt, 2}}, S::kCorrupt, 7},
      {{{S::kCorrupt, 0}, {S::kOk, 5}}, {{S::kOk, 5}, {S::kCorrupt, 2}}, S::kCorrupt, 0},
      {{{S::kCorrupt, 3}, {S::kCorrupt, 4}}, {{S::kCorrupt, 1}, {S::kOk, 5}}, S::kCorrupt, 3},
      {{{S::kFailed, 0}, {S::kOk, 5}}, {{S::kOk, 5}, {S::kOk, 5}}, S::kFailed, 0},
      {{{S::kOk, 5}, {S::kOk, 5}}, {{S::kFailed, 0}, {S::kCorrupt, 4}}, S::kFailed, 0},
  };
  std::vector<ScriptedCopies::Script> scripts;
  for (int rank = 0; rank < 2; ++rank) {
    scripts.push_back([&cases, rank, batch = size_t{0}](CopyDirection, int32_t) mutable {
      const Case& now = cases[batch / 2];
      return batch++ % 2 == 0 ? now.first[rank] : now.second[rank];
    });
  }
  this->Start(scripts);
  for (const Case& expected : cases) {
    ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, 10)));
    const CopyAck ack = this->Await();
    EXPECT_EQ(ack.status, expected.status);
    EXPECT_EQ(ack.num_good, expected.num_good);
  }
}

// Has five pages ready at once, and all others when told.
class ArrivingCopies final : public ScriptedCopies {
 public:
  explicit ArrivingCopies(std::atomic<bool>& all) : ScriptedCopies(Good), all_(all) {}
  int32_t PrepareNext() override {
    if (!std::exchange(first_, false)) all_.wait(false);
    return all_ ? kAllPages : 5;
  }

 private:
  std::atomic<bool>& all_;
  bool first_ = true;
};

TYPED_TEST(CopyTransport, APageIsReadyWhenAllRanksHaveItReady) {
  std::atomic<bool> all{false};
  Runners runners;
  runners.push_back(std::make_unique<CopyingRunner>(std::make_unique<ScriptedCopies>(Good)));
  runners.push_back(std::make_unique<CopyingRunner>(std::make_unique<ArrivingCopies>(all)));
  this->transport = this->ranks.Start(std::move(runners), 2);
  while (this->transport->ready_pages() == 0) std::this_thread::yield();
  EXPECT_EQ(this->transport->ready_pages(), 5);
  all = true;
  all.notify_all();
  while (this->transport->ready_pages() == 5) std::this_thread::yield();
  EXPECT_EQ(this->transport->ready_pages(), CopyRunner::kAllPages);
}

TYPED_TEST(CopyTransport, WithoutHostMemoryNothingIsSent) {
  Runners runners;
  runners.push_back(std::make_unique<CopyingRunner>(nullptr));
  this->transport = this->ranks.Start(std::move(runners), 2);
  EXPECT_FALSE(this->transport->Submit(this->Job(kStore, 1)));
  CopyAck ack;
  EXPECT_FALSE(this->transport->PollCopy(ack));
  EXPECT_EQ(this->transport->fault(), "");
}

TYPED_TEST(CopyTransport, CopiesEndAfterTheirRequestsAreForgotten) {
  this->Start({Good});
  for (const CopyDirection direction : {kStore, kStore, kLoad, kLoad}) {
    ASSERT_TRUE(this->transport->Submit(this->Job(direction, 3)));
  }
  this->transport.reset();  // hangs or crashes if a rank is left behind
}

TYPED_TEST(CopyTransport, RecoverForgetsCopies) {
  this->Start({Good});
  ASSERT_TRUE(this->transport->Submit(this->Job(kStore, 3)));
  EXPECT_FALSE(this->transport->Recover());
  CopyAck ack;
  EXPECT_FALSE(this->transport->PollCopy(ack));
  EXPECT_FALSE(this->transport->Submit(this->Job(kStore, 3)));
}

template <typename Ranks>
void CopyTransport<Ranks>::RunProgram(uint32_t seed, bool checksum) {
  Program program(seed, checksum);
  Start(program.Copies());
  for (int turn = 0; turn < 3000; ++turn) {
    program.FillSome();
    const CopyJob job = program.Propose(++submitted);
    if (!job.copies.empty()) {
      ASSERT_TRUE(transport->Submit(job));
    }
    while (program.in_flight() == 4 || (program.in_flight() > 0 && program.Random(3) == 0)) {
      ASSERT_NO_FATAL_FAILURE(program.Retire(Await()));
    }
  }
  while (program.in_flight() > 0) ASSERT_NO_FATAL_FAILURE(program.Retire(Await()));
  program.CheckAll();
  End();
}

TYPED_TEST(CopyTransport, BytesArriveWhereTheyBelong) {
  this->RunProgram(/*seed=*/1, /*checksum=*/false);
}

TYPED_TEST(CopyTransport, WithChecksumsTheyDoTheSame) {
  this->RunProgram(/*seed=*/2, /*checksum=*/true);
}

// Rank 0 has a page of other bytes than were stored there; rank 1 has not.
TYPED_TEST(CopyTransport, ACorruptPageIsFoundBeforeItIsLoaded) {
  CopyPool good(/*checksum=*/true), bad(/*checksum=*/true);
  CopyRunners copies;
  copies.push_back(bad.Copies());
  copies.push_back(good.Copies());
  this->Start(std::move(copies));
  for (int32_t block = 1; block <= 9; ++block) bad.Fill(block, block), good.Fill(block, block);
  ASSERT_TRUE(this->transport->Submit(this->Job(kStore, 9)));
  EXPECT_EQ(this->Await().status, CopyStatus::kOk);
  bad.arena().page(7).back() ^= std::byte{1};
  for (int32_t block = 1; block <= 9; ++block) bad.Fill(block, 77), good.Fill(block, 77);
  ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, 9)));
  const CopyAck ack = this->Await();
  EXPECT_EQ(ack.status, CopyStatus::kCorrupt);
  EXPECT_EQ(ack.num_good, 6);
  for (int32_t block = 1; block <= 6; ++block) EXPECT_TRUE(bad.Holds(block, block)) << block;
  EXPECT_TRUE(bad.Holds(7, 77));
  this->End();
}

TYPED_TEST(CopyTransport, APageThatTheServerWroteIsLoadedOnceItIsSigned) {
  CopyPool pool(/*checksum=*/true);
  CopyRunners copies;
  copies.push_back(pool.Copies());
  this->Start(std::move(copies));
  CopyPool::Fill(pool.arena().page(1), 5);
  ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, 1)));
  EXPECT_EQ(this->Await().status, CopyStatus::kCorrupt);
  pool.arena().Sign(1);
  ASSERT_TRUE(this->transport->Submit(this->Job(kLoad, 1)));
  EXPECT_EQ(this->Await().status, CopyStatus::kOk);
  EXPECT_TRUE(pool.Holds(1, 5));
  this->End();
}

// Malformed acks of a load of three copies; the server survives each with a
// fault.
class CorruptCopyAckTest : public ::testing::Test {
 protected:
  explicit CorruptCopyAckTest(CopyDirection direction = kLoad) {
    const StepMemory::Shape shape{.ranks = 1,
                                  .depth = 2,
                                  .bounds = {.max_rows = 4, .max_tokens = 64, .num_blocks = 16},
                                  .num_pages = 9,
                                  .block_bytes = 100};
    memory_ = std::make_shared<StepMemory>(
        *StepMemory::Create(*SharedMemory::Create("quire steps"), shape));
    transport_ = std::make_unique<SharedMemoryTransport>(
        memory_, std::make_shared<std::atomic<uint32_t>>(0), /*vocab_size=*/100, memory_->masks());
    EXPECT_TRUE(transport_->Submit({1, direction, {{1, 1}, {2, 2}, {3, 3}}}));
  }
  std::string FaultAfter(const CopyAck& ack, CopyDirection direction = kLoad, int times = 1) {
    SharedRing ring = memory_->copies(0).acks(direction);
    std::memcpy(ring.slot(0).data(), &ack, sizeof ack);
    for (int i = 0; i < times; ++i) ring.Publish();
    CopyAck joined;
    EXPECT_FALSE(transport_->PollCopy(joined));
    EXPECT_FALSE(transport_->PollCopy(joined));
    EXPECT_FALSE(transport_->Submit({2, kStore, {{1, 1}}}));
    return transport_->fault();
  }
  std::shared_ptr<StepMemory> memory_;
  std::unique_ptr<SharedMemoryTransport> transport_;
};

class CorruptStoreAckTest : public CorruptCopyAckTest {
 protected:
  CorruptStoreAckTest() : CorruptCopyAckTest(kStore) {}
};

TEST_F(CorruptCopyAckTest, AValidAck) {
  const CopyAck ack{1, CopyStatus::kCorrupt, 2, 200, 0};
  std::memcpy(memory_->copies(0).acks(kLoad).slot(0).data(), &ack, sizeof ack);
  memory_->copies(0).acks(kLoad).Publish();
  CopyAck joined;
  EXPECT_TRUE(transport_->PollCopy(joined)) << transport_->fault();
}
TEST_F(CorruptCopyAckTest, AnotherJob) {
  EXPECT_THAT(FaultAfter({2, CopyStatus::kOk, 3, 300, 0}), HasSubstr("as to job 2 to copy job 1"));
}
TEST_F(CorruptCopyAckTest, NoStatus) {
  EXPECT_THAT(FaultAfter({1, static_cast<CopyStatus>(77), 3, 300, 0}), HasSubstr("no status"));
}
TEST_F(CorruptCopyAckTest, OkWithAMissingCopy) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kOk, 2, 200, 0}), HasSubstr("2 good copies"));
}
TEST_F(CorruptCopyAckTest, MoreGoodCopiesThanCopies) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kOk, 4, 400, 0}), HasSubstr("4 good copies"));
}
TEST_F(CorruptCopyAckTest, NegativeNumberOfGoodCopies) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kCorrupt, -1, -100, 0}), HasSubstr("-1 good copies"));
}
TEST_F(CorruptCopyAckTest, CorruptAndAllGood) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kCorrupt, 3, 300, 0}), HasSubstr("3 good copies"));
}
TEST_F(CorruptCopyAckTest, FailedAndSomeGood) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kFailed, 1, 100, 0}), HasSubstr("1 good copies"));
}
TEST_F(CorruptCopyAckTest, WrongNumberOfBytes) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kOk, 3, 301, 0}), HasSubstr("301 bytes"));
}
TEST_F(CorruptCopyAckTest, TimeThatDidNotPass) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kOk, 3, 300, kNever}), HasSubstr(" ns"));
}
TEST_F(CorruptCopyAckTest, TimeThatRanBackwards) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kOk, 3, 300, -1}), HasSubstr("-1 ns"));
}
TEST_F(CorruptCopyAckTest, MoreJobsThanSent) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kOk, 3, 300, 0}, kLoad, /*times=*/2),
              HasSubstr("did 2 of 1 copy jobs"));
}
TEST_F(CorruptStoreAckTest, AStoreIsNeverCorrupt) {
  EXPECT_THAT(FaultAfter({1, CopyStatus::kCorrupt, 1, 100, 0}, kStore), HasSubstr("is corrupt"));
}

}  // namespace
}  // namespace quire
