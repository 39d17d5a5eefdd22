// Throughput of offload and restore on the CPU, through the rings and threads of a worker, as a
// fraction of plain memcpy of the same blocks by one thread in the same run; then both directions
// at once, and with checksums. Checks the bytes first. Prints one JSON object per line. One
// direction alone should reach 0.8 of memcpy.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/engine/session_copier.h"
#include "engine/worker/copy/pool_copies.h"

namespace quire {
namespace {

constexpr int64_t kSessionBytes = int64_t{128} << 20;
constexpr int kRounds = 15;

// Ordinary memory, touched.
class PlainMemory {
 public:
  explicit PlainMemory(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data_ != MAP_FAILED);
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 0x5A, bytes);
  }
  ~PlainMemory() { munmap(data_, bytes_); }
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  // Blocks of 16 tokens with `head_dim` * 1 KiB bytes; with the host memory of ranks that are
  // threads, or of those that inherit it.
  Bench(int32_t head_dim, bool inherited)
      : ranks_(inherited ? "process" : "threads"),
        layout_{.num_layers = 4, .num_kv_heads = 2, .head_dim = head_dim, .block_size = 16},
        blocks_(static_cast<int32_t>(kSessionBytes / layout_.block_bytes())),
        cache_(*KvCache::Create(*backend_, layout_, 1 + 2 * blocks_)),
        arena_(MakeArena({2 * blocks_, layout_.block_bytes()}, inherited)),
        plain_(static_cast<size_t>(kSessionBytes)) {
    for (int32_t block = 1; block <= 2 * blocks_; ++block) {
      std::memset(cache_.block_data(block), block, Bytes());
    }
    for (PageId page = 0; page < 2 * blocks_; ++page) {
      std::memset(arena_->page(page).data(), page, Bytes());
    }
  }

  void Run() {
    Check();
    Report("offload", true, false, [this](int32_t block) {
      std::memcpy(plain_.data() + (block - 1) * Bytes(), cache_.block_data(block), Bytes());
    });
    Report("restore", false, true, [this](int32_t block) {
      std::memcpy(cache_.block_data(block), plain_.data() + (block - 1) * Bytes(), Bytes());
    });
    const Rates both = Measure(true, true, /*checksum=*/false, nullptr);
    Print("both", both, 0);
    Print("offload with checksum", Measure(true, false, /*checksum=*/true, nullptr), 0);
    Print("restore with checksum", Measure(false, true, /*checksum=*/true, nullptr), 0);
  }

 private:
  struct Rates {
    std::vector<double> copies, plain;
  };

  static std::shared_ptr<HostArena> MakeArena(const HostArena::Shape& shape, bool inherited) {
    if (!inherited) return std::make_shared<HostArena>(*HostArena::CreatePrivate(shape));
    auto arena = std::make_shared<HostArena>(*HostArena::Create());
    CHECK(arena->Allocate(shape).ok());
    return arena;
  }

  size_t Bytes() const { return static_cast<size_t>(layout_.block_bytes()); }

  PoolCopies Copies(bool checksum) {
    return {cache_, arena_, backend_->MakeBlockCopier(), checksum};
  }

  // Copies a session's blocks to pages, and from there to other blocks.
  void Check() {
    PoolCopies copies = Copies(/*checksum=*/true);
    for (int32_t block = 1; block <= blocks_; block += CopyJob::kMaxCopies) {
      std::vector<BlockCopy> there, back;
      for (int32_t i = block; i <= std::min(blocks_, block + CopyJob::kMaxCopies - 1); ++i) {
        there.push_back({i, i});
        back.push_back({blocks_ + i, i});
      }
      copies.Begin(CopyDirection::kStore, there);
      CHECK(copies.Finish(CopyDirection::kStore).status == CopyStatus::kOk);
      copies.Begin(CopyDirection::kLoad, back);
      CHECK(copies.Finish(CopyDirection::kLoad).status == CopyStatus::kOk);
    }
    for (int32_t block = 1; block <= blocks_; ++block) {
      CHECK(std::memcmp(cache_.block_data(block), cache_.block_data(blocks_ + block), Bytes()) ==
            0);
    }
    for (PageId page = 0; page < 2 * blocks_; ++page) arena_->Sign(page);
  }

  // The two alternate, so that both see the same machine.
  Rates Measure(bool stores, bool loads, bool checksum, const std::function<void(int32_t)>& plain) {
    PoolCopies runner = Copies(checksum);
    SessionCopier copier(runner,
                         {.first_block = 1, .session_blocks = blocks_, .num_pages = 2 * blocks_});
    Rates rates;
    for (int round = 0; round < kRounds; ++round) {
      rates.copies.push_back(copier.Rate(stores, loads, 1));
      if (plain == nullptr) continue;
      const int64_t begin_ns = SteadyNowNs();
      for (int32_t i = 0; i < blocks_; ++i) plain(1 + i * 37 % blocks_);
      rates.plain.push_back(static_cast<double>(blocks_ * layout_.block_bytes()) /
                            static_cast<double>(SteadyNowNs() - begin_ns));
    }
    return rates;
  }

  void Report(const char* name, bool stores, bool loads,
              const std::function<void(int32_t)>& plain) {
    const Rates rates = Measure(stores, loads, /*checksum=*/false, plain);
    std::vector<double> fractions;
    for (int i = 0; i < kRounds; ++i) fractions.push_back(rates.copies[i] / rates.plain[i]);
    Print(name, rates, Median(fractions));
  }

  void Print(const char* name, const Rates& rates, double fraction) const {
    std::printf(
        "{\"benchmark\": \"copy\", \"what\": \"%s\", \"ranks\": \"%s\", \"block_bytes\": %lld, "
        "\"gbps\": %.2f",
        name, ranks_, static_cast<long long>(layout_.block_bytes()), Median(rates.copies));
    if (!rates.plain.empty()) {
      std::printf(", \"memcpy_gbps\": %.2f, \"fraction\": %.3f", Median(rates.plain), fraction);
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

  const char* const ranks_;
  const std::unique_ptr<Backend> backend_ = std::move(CreateCpuBackends(1, 1)[0]);
  const KvLayout layout_;
  const int32_t blocks_;  // of a session
  const KvCache cache_;
  const std::shared_ptr<HostArena> arena_;
  const PlainMemory plain_;
};

}  // namespace
}  // namespace quire

int main() {
  for (const bool inherited : {false, true}) {
    for (const int32_t head_dim : {32, 2048}) quire::Bench(head_dim, inherited).Run();
  }
  return 0;
}
