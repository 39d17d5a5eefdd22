// Ranks for tests of every Transport: threads of the transport's own, and rank loops behind shared
// memory, as processes would be.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/worker/in_process_transport.h"
#include "engine/worker/process/shared_memory_transport.h"
#include "engine/worker/program/rank_loop.h"
#include "engine/worker/rank/run_pipeline.h"
#include "gtest/gtest.h"

namespace quire::testing {

using Runners = std::vector<std::unique_ptr<StepRunner>>;

// Threads of the transport's own.
struct ThreadRanks {
  std::unique_ptr<Transport> Start(Runners runners, int depth) {
    return std::make_unique<InProcessTransport>(std::move(runners), depth);
  }
  void Join() {}
};

// Rank loops that know nothing but the descriptors of the memory, as processes would.
struct SharedRanks {
  ~SharedRanks() { Join(); }
  std::unique_ptr<Transport> Start(Runners runners, int depth) {
    StepMemory::Shape shape{.ranks = static_cast<int32_t>(runners.size()), .depth = depth};
    shape.bounds = {.max_rows = 4, .max_tokens = 64, .num_blocks = 16};
    if (CopyRunner* const copies = runners.front()->copies()) {
      shape.num_pages = 1;
      shape.block_bytes = copies->block_bytes();
    }
    memory = std::make_shared<StepMemory>(
        *StepMemory::Create(*SharedMemory::Create("quire steps"), shape));
    // Zeroed, and as good as a page of shared memory for threads.
    bell = std::make_shared<std::atomic<uint32_t>>(0);
    for (size_t rank = 0; rank < runners.size(); ++rank) {
      threads.emplace_back([this, depth, rank, runner = std::move(runners[rank])]() mutable {
        RunPipeline pipeline(std::move(runner), depth);
        RankLoop loop(*memory, *bell, pipeline, {.rank = static_cast<int32_t>(rank)});
        EXPECT_TRUE(loop.Run().ok());
      });
    }
    return std::make_unique<SharedMemoryTransport>(memory, bell, /*vocab_size=*/100,
                                                   memory->masks());
  }
  // After the transport's end: waits for that of the ranks.
  void Join() {
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  std::shared_ptr<StepMemory> memory;
  std::shared_ptr<std::atomic<uint32_t>> bell;
  std::vector<std::thread> threads;
};

using RankKinds = ::testing::Types<ThreadRanks, SharedRanks>;

}  // namespace quire::testing
