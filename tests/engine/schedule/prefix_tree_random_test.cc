// Seeded random programs of all operations on a prefix tree and its pool, in lockstep with a slow
// reference: lookups, holds, keeps, growth, tails, copies that end in any order and with any
// result, imports, drops, pressure, lost devices, flushes, and readers of events. A failure prints
// its seed. --seed=N runs that program alone and, if it fails, prints the fewest operations that
// still fail. --steps=N runs programs until that many operations are done.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/schedule/random_steps.h"
#include "tests/engine/schedule/tree_lockstep.h"

namespace quire {
namespace {

using Node = ReferenceTree::Node;

constexpr int32_t kMaxHolders = 12;
constexpr int32_t kMaxDepth = 8;
constexpr int32_t kKeepers = 10;

uint64_t running_seed = 0;

// Runs also when a CHECK aborts.
void PrintSeed(int) { std::fprintf(stderr, "failed; repeat with --seed=%lu\n", running_seed); }

class Program {
 public:
  explicit Program(uint64_t seed)
      : seed_(seed),
        random_(seed),
        block_size_(Between(1, 3)),
        vocab_(OneIn(3) ? 1 : 2),
        num_tenants_(OneIn(8) ? 200 : 2),
        both_({.block_size = block_size_,
               .num_blocks = Between(1, OneIn(4) ? 40 : 12),
               .num_pages = OneIn(5) ? 0 : Between(1, 14),
               .hash_seed = OneIn(2) ? 0 : seed}) {}

  // An operation is a number that seeds its own random numbers, so that any can be left out.
  void Run(const std::vector<int32_t>& operations, bool print) {
    for (const int32_t i : operations) {
      random_.seed(seed_ << 20 | i);
      const char* name = RandomOperation();
      if (print) std::cout << "  " << i << " " << name << std::endl;
      both_.Compare();
      if (testing::Test::HasFailure()) return;
    }
    both_.Quiesce();
  }

  const TreeLockstep::Tally& tally() const { return both_.tally(); }

 private:
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % (high - low + 1));
  }
  bool OneIn(int32_t n) { return Between(1, n) == 1; }
  std::vector<int32_t> Tokens(int32_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = Between(0, vocab_ - 1);
    return tokens;
  }
  // Null if there is none.
  template <typename Predicate>
  Node* AnyNode(Predicate predicate) {
    std::vector<Node*> nodes = both_.reference().All();
    std::erase_if(nodes, [&](Node* node) { return !predicate(*node); });
    return nodes.empty() ? nullptr : nodes[random_() % nodes.size()];
  }
  template <typename Predicate>
  Node* AnyHeld(Predicate predicate) {
    std::vector<Node*> nodes = both_.holders();
    std::erase_if(nodes, [&](Node* node) { return !predicate(*node); });
    return nodes.empty() ? nullptr : nodes[random_() % nodes.size()];
  }
  bool room_for_holders() { return both_.holders().size() <= kMaxHolders; }

  const char* RandomOperation() {
    struct Operation {
      int32_t weight;
      const char* name;
      void (Program::*run)();
    };
    static constexpr Operation kOperations[] = {
        {30, "find", &Program::Find},
        {22, "release", &Program::Release},
        {40, "grow", &Program::Grow},
        {20, "keep or unkeep", &Program::KeepOrUnkeep},
        {10, "take tail", &Program::TakeTail},
        {12, "begin store", &Program::BeginStore},
        {10, "begin load", &Program::BeginLoad},
        {20, "end copy", &Program::EndCopy},
        {10, "import", &Program::Import},
        {10, "drop", &Program::Drop},
        {14, "use pool", &Program::UsePool},
        {1, "lose device", &Program::LoseDevice},
        {3, "watch", &Program::Watch},
        {20, "walk", &Program::Walk},
        {1, "flush", &Program::Flush},
        {4, "bound", &Program::Bound},
    };
    int32_t dice = Between(0, 226);
    const Operation* operation = kOperations;
    while (dice >= operation->weight) dice -= (operation++)->weight;
    (this->*operation->run)();
    return operation->name;
  }

  void Find() {
    Node* node = both_.Find(Between(1, num_tenants_), Tokens(Between(0, kMaxDepth * block_size_)));
    if (room_for_holders() && !OneIn(4)) both_.Hold(node);
  }

  void Release() {
    if (Node* node = AnyHeld([](const Node&) { return true; })) both_.Release(node);
  }

  Node* AnyParent() {
    if (!room_for_holders()) return nullptr;
    return AnyHeld(
        [&](Node& node) { return !node.tail && both_.reference().Depth(&node) < kMaxDepth; });
  }

  void Grow() {
    Node* parent = AnyParent();
    if (parent == nullptr) return;
    if (block_size_ > 1 && OneIn(6)) {
      both_.InsertTail(parent, Tokens(Between(1, block_size_ - 1)));
    } else if (both_.Insert(parent, Tokens(block_size_)) != nullptr && OneIn(2)) {
      both_.Release(parent);
    }
  }

  void TakeTail() {
    Node* tail = AnyHeld([](const Node& node) { return node.tail && node.kv.on_device(); });
    if (tail != nullptr) both_.TakeTail(tail);
  }

  void KeepOrUnkeep() {
    const uint64_t keeper = Between(0, kKeepers - 1);
    both_.Unkeep(keeper);
    Node* node = AnyNode([](const Node&) { return true; });
    if (node != nullptr && OneIn(2)) both_.Keep(node, keeper);
  }

  void BeginStore() {
    Node* node =
        AnyNode([](const Node& node) { return node.kv.on_device() && node.kv.page == kNoPage; });
    if (node != nullptr) both_.BeginStore(node);
  }

  void BeginLoad() {
    Node* node = AnyNode([](const Node& node) { return node.kv.on_host() && !node.has_block(); });
    if (node != nullptr) both_.BeginLoad(node);
  }

  void EndCopy() {
    if (both_.copies().empty()) return;
    const auto& copy = both_.copies()[random_() % both_.copies().size()];
    const bool ok = !OneIn(3);
    both_.EndCopy(copy.node, ok, !ok && OneIn(2));
  }

  void Import() {
    Node* parent = AnyParent();
    if (parent == nullptr) return;
    const bool tail = block_size_ > 1 && OneIn(4);
    both_.Import(parent, Tokens(tail ? Between(1, block_size_ - 1) : block_size_), tail);
  }

  void Drop() {
    Node* node = AnyNode([](const Node&) { return true; });
    if (node == nullptr) return;
    if (OneIn(2)) {
      both_.DropBlock(node);
    } else {
      both_.DropPage(node);
    }
  }

  void UsePool() {
    const int32_t dice = Between(0, 4);
    if (dice == 0) {
      both_.TakePrivate();
    } else if (dice <= 2) {
      if (both_.num_private() > 0) both_.ReleasePrivate(random_() % both_.num_private());
    } else if (dice == 3) {
      both_.pool().Reserve(Between(0, 3));
    } else {
      both_.pool().Unreserve(Between(0, both_.pool().reserved()));
    }
  }

  void LoseDevice() {
    if (!OneIn(2)) return;
    if (!OneIn(4)) both_.ReleaseAll();  // otherwise some holds remain, like those of pins
    both_.ForgetDevice();
  }

  void Watch() { both_.Watch(Between(1, num_tenants_)); }
  void Walk() { both_.ContinueWalk(Between(1, 40)); }
  void Flush() { both_.Flush(OneIn(3)); }
  // Tenant 1 has no bound, so that it takes the pages that others leave.
  void Bound() { both_.SetBound(Between(2, num_tenants_), Between(block_size_ > 1 ? 0 : 1, 8)); }

  const uint64_t seed_;
  std::mt19937_64 random_;
  const int32_t block_size_;
  const int32_t vocab_;
  const int32_t num_tenants_;
  TreeLockstep both_;
};

// Runs in a child process, because a failed CHECK ends it.
bool Fails(uint64_t seed, const std::vector<int32_t>& operations) {
  const pid_t child = fork();
  if (child == 0) {
    const bool silent = std::freopen("/dev/null", "w", stdout) != nullptr &&
                        std::freopen("/dev/null", "w", stderr) != nullptr;
    if (!silent) _exit(0);
    Program(seed).Run(operations, false);
    _exit(testing::Test::HasFailure());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

// Runs the failure again with as few operations as possible: leaves out ever smaller pieces.
void Shrink(uint64_t seed, std::vector<int32_t> operations) {
  for (size_t piece = operations.size() / 2; piece > 0; piece /= 2) {
    for (size_t at = 0; at + piece <= operations.size();) {
      std::vector<int32_t> fewer = operations;
      fewer.erase(fewer.begin() + at, fewer.begin() + at + piece);
      if (Fails(seed, fewer)) {
        operations = fewer;
      } else {
        at += piece;
      }
    }
  }
  std::cout << operations.size() << " operations are enough:\n";
  Program(seed).Run(operations, true);
}

std::vector<int32_t> OperationsOf(uint64_t seed) {
  std::vector<int32_t> operations(seed % 10 == 0 ? 3000 : 300);
  std::iota(operations.begin(), operations.end(), 0);
  return operations;
}

TEST(PrefixTreeRandomTest, AgreesWithTheReference) {
  using Tally = TreeLockstep::Tally;
  constexpr int64_t Tally::*kCounts[] = {
      &Tally::found,           &Tally::evicted, &Tally::kept_lost,     &Tally::moved_keepers,
      &Tally::not_adopted,     &Tally::swapped, &Tally::husks_filled,  &Tally::tails_taken,
      &Tally::pages_reclaimed, &Tally::doomed,  &Tally::devices_lost,  &Tally::tiers_lost,
      &Tally::events,          &Tally::flushed, &Tally::bound_refused, &Tally::bound_reused,
      &Tally::bound_lost};
  if (random_steps.only_seed != 0) {
    running_seed = random_steps.only_seed;
    const std::vector<int32_t> operations = OperationsOf(random_steps.only_seed);
    if (Fails(random_steps.only_seed, operations)) Shrink(random_steps.only_seed, operations);
    return;
  }
  Tally sum;
  int64_t steps = 0;
  for (uint64_t seed = 1; steps < random_steps.steps; ++seed) {
    running_seed = seed;
    const std::vector<int32_t> operations = OperationsOf(seed);
    Program program(seed);
    program.Run(operations, false);
    steps += static_cast<int64_t>(operations.size());
    if (HasFailure()) return PrintSeed(0);
    for (const auto count : kCounts) sum.*count += program.tally().*count;
  }
  std::cout << steps << " operations;";
  // The programs reach every case often enough.
  for (const auto count : kCounts) {
    EXPECT_GT(sum.*count, steps / 20000) << "count " << &count - kCounts;
    std::cout << " " << sum.*count;
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::signal(SIGABRT, quire::PrintSeed);
  quire::ReadRandomSteps(argc, argv);
  return RUN_ALL_TESTS();
}
