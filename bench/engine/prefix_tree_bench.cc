// Cost of the prefix cache for the scheduler: finding, holding and releasing the chain of a prompt
// of 2048 tokens, replacing cached chains by new ones block for block, and the map of all blocks
// and pages, in a full pool of 2^20 tokens with a host arena of the same size. The prompt is always
// the same ("hot": a system prompt) or always a different one ("cold": its nodes have left the
// processor's caches). Checks that nothing but the map allocates. Prints one JSON object per line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include "engine/schedule/kv/kv_map_builder.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/view_taker.h"
#include "kernels/check.h"
#include "tests/allocations.h"

namespace quire {
namespace {

constexpr int32_t kPromptTokens = 2048;
constexpr int32_t kPrompts = 512;  // that fill the pool
constexpr int32_t kVocab = 128000;
constexpr int kRounds = 20000;
constexpr int kMaps = 25;

double Microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double Median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class PrefixTreeBench {
 public:
  explicit PrefixTreeBench(int32_t block_size)
      : block_size_(block_size),
        num_blocks_(kPrompts * kPromptTokens / block_size),
        pool_(num_blocks_ + 1),
        tree_(pool_, block_size, num_blocks_) {
    find_.reserve(kRounds);
    hold_.reserve(kRounds);
    release_.reserve(kRounds);
    for (int i = 0; i < kPrompts; ++i) {
      prompts_.push_back(RandomPrompt());
      InsertChain(prompts_.back());
    }
  }

  void Run() {
    const Allocations allocations = AllocationsOf([this] {
      TimeLookups("hot", 1);
      TimeLookups("cold", kPrompts);
    });
    CHECK_EQ(allocations.num, 0);
    TimeReplacement();
    TimeMap();
    tree_.CheckInvariants();
  }

 private:
  std::vector<int32_t> RandomPrompt() {
    std::vector<int32_t> prompt(kPromptTokens);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random_() % kVocab);
    return prompt;
  }

  void InsertChain(std::span<const int32_t> tokens) {
    NodeId node = tree_.Find(0, {});
    tree_.Hold(node);
    for (; !tokens.empty(); tokens = tokens.subspan(block_size_)) {
      const auto inserted = tree_.Insert(node, tokens.first(block_size_), pool_.Take());
      tree_.Release(node);
      node = inserted.node;
    }
    tree_.Release(node);
  }

  void TimeLookups(const char* name, int num_prompts) {
    find_.clear();
    hold_.clear();
    release_.clear();
    for (int i = 0; i < kRounds; ++i) {
      const std::vector<int32_t>& prompt = prompts_[i % num_prompts];
      const auto begin = std::chrono::steady_clock::now();
      const NodeId node = tree_.Find(0, prompt);
      const auto found = std::chrono::steady_clock::now();
      tree_.Hold(node);
      const auto held = std::chrono::steady_clock::now();
      tree_.Release(node);
      const auto released = std::chrono::steady_clock::now();
      CHECK_EQ(tree_.NumTokens(node), kPromptTokens);
      find_.push_back(Microseconds(found - begin));
      hold_.push_back(Microseconds(held - found));
      release_.push_back(Microseconds(released - held));
    }
    std::printf(
        "{\"block_size\": %d, \"prompt_tokens\": %d, \"lookup\": \"%s\", \"find_us\": %.2f, "
        "\"hold_us\": %.2f, \"release_us\": %.2f}\n",
        block_size_, kPromptTokens, name, Median(find_), Median(hold_), Median(release_));
  }

  // Every block of a new prompt evicts one of an old prompt: Take, Reclaim, Insert, Release.
  void TimeReplacement() {
    const int64_t evicted_before = tree_.evictions().num_evicted();
    for (std::vector<int32_t>& prompt : prompts_) prompt = RandomPrompt();
    std::chrono::steady_clock::duration time{};
    const Allocations allocations = AllocationsOf([&] {
      const auto begin = std::chrono::steady_clock::now();
      for (const std::vector<int32_t>& prompt : prompts_) InsertChain(prompt);
      time = std::chrono::steady_clock::now() - begin;
    });
    CHECK_EQ(allocations.num, 0);
    CHECK_EQ(tree_.evictions().num_evicted() - evicted_before, num_blocks_);
    std::printf("{\"block_size\": %d, \"replace_block_ns\": %.1f}\n", block_size_,
                1000 * Microseconds(time) / num_blocks_);
  }

  // Between two maps other work has taken the processor's caches.
  void TimeMap() {
    std::vector<double> parts, builds, maps;
    std::vector<char> others(size_t{64} << 20);
    for (int i = 0; i < kMaps; ++i) {
      std::fill(others.begin(), others.end(), static_cast<char>(i));
      const auto begin = std::chrono::steady_clock::now();
      KvMapBuilder builder(pool_, tree_.nodes());
      CHECK(!builder.ReadNodes(ViewTaker::kPartNodes));
      const auto read = std::chrono::steady_clock::now();
      while (!builder.ReadNodes(ViewTaker::kPartNodes)) continue;
      const auto all = std::chrono::steady_clock::now();
      const KvMap map = builder.Build();
      parts.push_back(Microseconds(read - begin));
      builds.push_back(Microseconds(std::chrono::steady_clock::now() - all));
      maps.push_back(Microseconds(std::chrono::steady_clock::now() - begin));
      CHECK_EQ(map.blocks[static_cast<size_t>(BlockOwner::kCached)], num_blocks_);
    }
    std::printf(
        "{\"block_size\": %d, \"blocks\": %d, \"pages\": %d, \"kv_map_us\": %.0f, "
        "\"first_part_us\": %.0f, \"last_part_us\": %.0f}\n",
        block_size_, num_blocks_, num_blocks_, Median(maps), Median(parts), Median(builds));
  }

  const int32_t block_size_;
  const int32_t num_blocks_;
  std::mt19937_64 random_{1};
  BlockPool pool_;
  PrefixTree tree_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<double> find_, hold_, release_;
};

}  // namespace
}  // namespace quire

int main() {
  for (const int32_t block_size : {16, 64}) quire::PrefixTreeBench(block_size).Run();
}
