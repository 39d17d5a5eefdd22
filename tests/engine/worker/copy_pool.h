// CopyPool: one rank's KV pool on the CPU and its host arena, with patterns in blocks and pages.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "engine/worker/copy/pool_copies.h"
#include "gtest/gtest.h"

namespace quire::testing {

class CopyPool {
 public:
  static constexpr int32_t kBlocks = 40, kPages = 50;

  explicit CopyPool(bool checksum)
      : arena_(std::make_shared<HostArena>(*HostArena::Create())), checksum_(checksum) {
    // Blocks of an odd size.
    const KvLayout layout{.num_layers = 3, .num_kv_heads = 1, .head_dim = 5, .block_size = 7};
    cache_ = *KvCache::Create(*backend_, layout, kBlocks);
    EXPECT_TRUE(arena_->Allocate({kPages, layout.block_bytes()}).ok());
  }
  // This outlives it.
  std::unique_ptr<CopyRunner> Copies() { return Copies(backend_->MakeBlockCopier()); }
  std::unique_ptr<PoolCopies> Copies(std::unique_ptr<BlockCopier> copier) {
    return std::make_unique<PoolCopies>(cache_, arena_, std::move(copier), checksum_);
  }
  int64_t block_bytes() const { return cache_.layout().block_bytes(); }
  HostArena& arena() { return *arena_; }

  // Every byte of a pattern depends on the seed and on where it lies.
  void Fill(int32_t block, uint32_t seed) { Fill(BytesOf(block), seed); }
  bool Holds(int32_t block, uint32_t seed) const { return Holds(BytesOf(block), seed); }
  bool PageHolds(PageId page, uint32_t seed) const { return Holds(arena_->page(page), seed); }
  static void Fill(std::span<std::byte> bytes, uint32_t seed) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }
  static bool Holds(std::span<const std::byte> bytes, uint32_t seed) {
    std::vector<std::byte> expected(bytes.size());
    Fill(expected, seed);
    return std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0;
  }

 private:
  std::span<std::byte> BytesOf(int32_t block) const {
    return {static_cast<std::byte*>(cache_.block_data(block)), static_cast<size_t>(block_bytes())};
  }

  const std::unique_ptr<Backend> backend_ = std::move(CreateCpuBackends(1, 1)[0]);
  const std::shared_ptr<HostArena> arena_;
  const bool checksum_;
  KvCache cache_;
};

}  // namespace quire::testing
