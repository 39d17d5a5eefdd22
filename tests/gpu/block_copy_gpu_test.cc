// Copies between a KV pool on the GPU and host memory: every byte of blocks of all sizes, pinned
// and unpinned, and beside running steps, where neither changes the other.
//
// Covers kernels/cuda/block_copier.cc
#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/worker/in_process_transport.h"
#include "engine/worker/rank/graph_use.h"
#include "kernels/cuda/block_copier.h"
#include "tests/gpu/demo_worker.h"

namespace quire::gpu {
namespace {

constexpr CopyDirection kStore = CopyDirection::kStore;
constexpr CopyDirection kLoad = CopyDirection::kLoad;

std::shared_ptr<HostArena> MakeArena(int32_t num_pages, int64_t page_bytes) {
  auto arena = std::make_shared<HostArena>(*HostArena::Create());
  EXPECT_TRUE(arena->Allocate({num_pages, page_bytes}).ok());
  return arena;
}

// Every eight bytes depend on the seed and on their offset.
void Fill(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, std::min<size_t>(8, bytes.size() - at));
  }
}

bool Holds(std::span<const std::byte> bytes, uint64_t seed) {
  std::vector<std::byte> expected(bytes.size());
  Fill(expected, seed);
  return std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0;
}

// A pool of device memory without a model, and its arena.
class DevicePool {
 public:
  static constexpr int32_t kBlocks = 33, kPages = 48;

  // `bytes` of a block: a multiple of 16.
  DevicePool(int64_t bytes, bool checksum) {
    std::string why;
    backend_ = CudaBackend::Create(CudaOptionsFor(DemoSpec({}), {}, 0, ""), &why);
    CHECK(backend_ != nullptr);
    const KvLayout layout{.num_layers = 1,
                          .num_kv_heads = 1,
                          .head_dim = static_cast<int32_t>(bytes / 16),
                          .block_size = 4,
                          .dtype = DType::kBF16};
    CHECK_EQ(layout.block_bytes(), bytes);
    cache_ = *KvCache::Create(*backend_, layout, kBlocks);
    backend_->Synchronize();
    arena_ = MakeArena(kPages, bytes);
    copies_ = std::make_unique<PoolCopies>(cache_, arena_, backend_->MakeBlockCopier(), checksum);
  }
  PoolCopies& copies() { return *copies_; }
  HostArena& arena() { return *arena_; }
  void FillBlock(int32_t block, uint64_t seed) {
    std::vector<std::byte> bytes(Size());
    Fill(bytes, seed);
    CUDA_CHECK(cudaMemcpy(cache_.block_data(block), bytes.data(), Size(), cudaMemcpyDefault));
    // The copy may end after the call, and the copier's streams do not wait for it.
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  bool BlockHolds(int32_t block, uint64_t seed) const {
    std::vector<std::byte> bytes(Size());
    CUDA_CHECK(cudaMemcpy(bytes.data(), cache_.block_data(block), Size(), cudaMemcpyDefault));
    return Holds(bytes, seed);
  }
  CopyRunner::Outcome Copy(CopyDirection direction, const std::vector<BlockCopy>& copies) {
    copies_->Begin(direction, copies);
    return copies_->Finish(direction);
  }

 private:
  size_t Size() const { return static_cast<size_t>(cache_.layout().block_bytes()); }

  std::unique_ptr<CudaBackend> backend_;
  KvCache cache_;
  std::shared_ptr<HostArena> arena_;
  std::unique_ptr<PoolCopies> copies_;
};

void PrepareAll(CopyRunner& copies) {
  while (copies.PrepareNext() != CopyRunner::kAllPages) {
  }
}

struct PoolCase {
  int64_t block_bytes;
  bool pinned, checksum;
};

class BlockCopyTest : public ::testing::TestWithParam<PoolCase> {};

// Stores every block, overwrites the pool, and loads the pages into other blocks.
TEST_P(BlockCopyTest, StoresAndLoadsEveryByte) {
  const auto& [bytes, pinned, checksum] = GetParam();
  DevicePool pool(bytes, checksum);
  if (pinned) PrepareAll(pool.copies());
  constexpr int32_t kCount = DevicePool::kBlocks - 1;
  std::vector<int32_t> blocks(kCount), pages(DevicePool::kPages);
  std::iota(blocks.begin(), blocks.end(), 1);
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937 random(static_cast<uint32_t>(bytes));
  std::vector<BlockCopy> stores, loads;
  std::shuffle(pages.begin(), pages.end(), random);
  for (int32_t i = 0; i < kCount; ++i) stores.push_back({blocks[i], pages[i]});
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (int32_t i = 0; i < kCount; ++i) loads.push_back({blocks[i], pages[i]});

  for (int32_t block = 1; block <= kCount; ++block) pool.FillBlock(block, 1000 + block);
  EXPECT_EQ(pool.Copy(kStore, stores).num_good, kCount);
  for (int32_t block = 0; block <= kCount; ++block) pool.FillBlock(block, 1);
  for (const BlockCopy& copy : stores) {
    ASSERT_TRUE(Holds(pool.arena().page(copy.page), 1000 + copy.block)) << copy.block;
  }
  const CopyRunner::Outcome outcome = pool.Copy(kLoad, loads);
  EXPECT_EQ(outcome.status, CopyStatus::kOk);
  EXPECT_EQ(outcome.num_good, kCount);
  EXPECT_TRUE(pool.BlockHolds(0, 1)) << "the null block";
  for (int32_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(pool.BlockHolds(loads[i].block, 1000 + stores[i].block)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BlockCopyTest,
                         ::testing::Values(PoolCase{848, true, false}, PoolCase{848, false, true},
                                           PoolCase{28 << 10, true, false},
                                           PoolCase{160 << 10, true, true},
                                           PoolCase{160 << 10, false, false},
                                           PoolCase{8 << 20, true, false},
                                           PoolCase{8 << 20, false, false}));

TEST(BlockCopy, RefusesACorruptPage) {
  DevicePool pool(64 << 10, /*checksum=*/true);
  for (int32_t block = 1; block <= 4; ++block) pool.FillBlock(block, block);
  const std::vector<BlockCopy> copies = {{1, 1}, {2, 2}, {3, 3}, {4, 4}};
  pool.Copy(kStore, copies);
  pool.arena().page(3)[12345] ^= std::byte{16};
  for (int32_t block = 1; block <= 4; ++block) pool.FillBlock(block, 99);
  const CopyRunner::Outcome outcome = pool.Copy(kLoad, copies);
  EXPECT_EQ(outcome.status, CopyStatus::kCorrupt);
  EXPECT_EQ(outcome.num_good, 2);
  EXPECT_TRUE(pool.BlockHolds(1, 1) && pool.BlockHolds(2, 2) && pool.BlockHolds(3, 99));
}

// Memory that the system refuses to pin is copied too, and no CUDA error remains.
TEST(BlockCopy, CopiesUnpinnedMemory) {
  DevicePool pool(64 << 10, /*checksum=*/false);
  const std::span<std::byte> first = pool.arena().page(0);
  CUDA_CHECK(cudaHostRegister(first.data(), first.size(), cudaHostRegisterDefault));
  PrepareAll(pool.copies());  // refused: the first page is registered already
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  CUDA_CHECK(cudaHostUnregister(first.data()));
  pool.FillBlock(1, 5);
  pool.Copy(kStore, {{1, 7}});
  EXPECT_TRUE(Holds(pool.arena().page(7), 5));
  pool.Copy(kLoad, {{2, 7}});
  EXPECT_TRUE(pool.BlockHolds(2, 5));
}

// Rows decode on low blocks of a real worker's pool while pages move through its high blocks.
class CopyingSteps {
 public:
  static constexpr int32_t kRows = 40, kSteps = 150, kPages = 600;

  CopyingSteps() : spec_(DemoSpec({})) {
    spec_.num_pages = kPages;
    arena_ = MakeArena(kPages, spec_.kv_layout.block_bytes());
    CudaWorkerReport report;
    auto worker = MakeCudaWorker(spec_, DemoOptions(spec_, {}), &report, arena_);
    CHECK(worker.ok());
    std::vector<std::unique_ptr<StepRunner>> runners;
    runners.push_back(*std::move(worker));
    transport_ = std::make_unique<InProcessTransport>(std::move(runners), 2);
    transport_->SetWake(&wake_);
  }

  // The tokens of all rows.
  std::vector<int32_t> Run(bool copying) {
    Prefill();
    for (int32_t step = 0; step < kSteps; ++step) {
      if (copying) PumpCopies();
      StepPlan& plan = Next();
      for (int32_t row = 0; row < kRows; ++row) {
        plan.work.push_back({.row = row, .start = kPrompt + step, .count = 1, .sample = 1});
      }
      plan.num_tokens = plan.num_samples = kRows;
      plan.graph_size = GraphSizeFor(plan, spec_.worker.graph_sizes);
      transport_->Publish();
      Await();
    }
    while (copying && (moved_ < kMoves || in_flight_ > 0)) PumpCopies();
    return tokens_;
  }
  // Page p went to block kFirstBlock + p, and from there to page kMoves + p.
  void CheckPages() {
    for (PageId page = 0; page < kMoves; ++page) {
      ASSERT_TRUE(Holds(arena_->page(kMoves + page), page)) << page;
    }
  }
  void FillPages() {
    for (PageId page = 0; page < kMoves; ++page) Fill(arena_->page(page), page);
  }
  int32_t loads_beside_steps() const { return loaded_; }

 private:
  static constexpr int32_t kPrompt = 100, kBlocksPerRow = 5, kMoves = 250, kPerJob = 10;
  static constexpr int32_t kFirstBlock = 1 + kRows * kBlocksPerRow;

  StepPlan& Next() {
    StepPlan& plan = *transport_->NextSlot();
    plan.Clear();
    plan.step = ++step_;
    return plan;
  }
  void Await() {
    const StepResult* result = transport_->Poll();
    for (; result == nullptr; result = transport_->Poll()) wake_.Wait(SteadyNowNs() + 1'000'000);
    for (const SampledToken& sample : result->samples) tokens_.push_back(sample.result.token);
    transport_->Release();
  }
  void Prefill() {
    std::mt19937 random(11);
    for (int32_t row = 0; row < kRows; ++row) {
      StepPlan& plan = Next();
      const auto id = static_cast<uint64_t>(row);
      plan.new_rows = {{.row = row, .num_prompt = kPrompt, .sampling = MixedSampling(id, id + 1)}};
      for (int32_t i = 0; i < kPrompt; ++i) plan.tokens.push_back(random() % kDemoVocabulary);
      plan.token_runs = {{.row = row, .count = kPrompt}};
      for (int32_t i = 0; i < kBlocksPerRow; ++i) {
        plan.block_adds.push_back({row, i, 1 + row * kBlocksPerRow + i});
      }
      plan.work = {{.row = row, .count = kPrompt, .sample = 1}};
      plan.num_tokens = kPrompt;
      plan.num_samples = 1;
      transport_->Publish();
      Await();
    }
  }
  // Loads ten pages, then stores them, one job of each kind in flight.
  void PumpCopies() {
    CopyAck ack;
    while (transport_->PollCopy(ack)) {
      EXPECT_EQ(ack.status, CopyStatus::kOk);
      EXPECT_EQ(ack.num_good, kPerJob);
      --in_flight_;
      (ack.job % 2 == 1 ? loaded_ : moved_) += kPerJob;
      (ack.job % 2 == 1 ? loading_ : storing_) = false;
    }
    if (!loading_ && loads_sent_ < kMoves) Submit(kLoad, loads_sent_, loads_sent_, loading_);
    if (!storing_ && stores_sent_ < loaded_) {
      Submit(kStore, stores_sent_, kMoves + stores_sent_, storing_);
    }
  }
  void Submit(CopyDirection direction, int32_t& sent, PageId page, bool& busy) {
    CopyJob job{.job = (direction == kLoad ? odd_ : even_) += 2, .direction = direction};
    for (int32_t i = 0; i < kPerJob; ++i) job.copies.push_back({kFirstBlock + sent + i, page + i});
    ASSERT_TRUE(transport_->Submit(job));
    sent += kPerJob;
    busy = true;
    ++in_flight_;
  }

  WorkerSpec spec_;
  std::shared_ptr<HostArena> arena_;
  WakeEvent wake_;
  std::unique_ptr<InProcessTransport> transport_;
  uint64_t step_ = 0;
  std::vector<int32_t> tokens_;
  uint64_t odd_ = static_cast<uint64_t>(-1), even_ = 0;  // numbers of loads and of stores
  int32_t loads_sent_ = 0, stores_sent_ = 0, loaded_ = 0, moved_ = 0, in_flight_ = 0;
  bool loading_ = false, storing_ = false;
};

TEST(BlockCopy, StepsAndCopiesDoNotChangeEachOther) {
  const std::vector<int32_t> alone = CopyingSteps().Run(/*copying=*/false);
  CopyingSteps together;
  together.FillPages();
  EXPECT_EQ(together.Run(/*copying=*/true), alone);
  together.CheckPages();
  EXPECT_EQ(alone.size(), size_t{CopyingSteps::kRows} * (CopyingSteps::kSteps + 1));
}

}  // namespace
}  // namespace quire::gpu
