// SharedRing and the memory below it: messages arrive whole and in order in another process, a lost
// wake costs latency only, and no process can shrink the memory under a reader.
#include "engine/worker/shm/shared_ring.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/shm/shared_memory.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr SharedRing::Shape kShape{.slots = 3, .slot_bytes = 100};

SharedMemory RingMemory() {
  SharedMemory memory = *SharedMemory::Create("quire test");
  EXPECT_TRUE(memory.Allocate(SharedRing::Bytes(kShape)).ok());
  return memory;
}

void Fill(std::span<std::byte> slot, uint64_t number) {
  std::memset(slot.data(), static_cast<int>(number % 251), slot.size());
}
bool Holds(std::span<std::byte> slot, uint64_t number) {
  for (const std::byte byte : slot) {
    if (byte != static_cast<std::byte>(number % 251)) return false;
  }
  return true;
}

// Ping-pong through two rings, the other end in a process that maps the memory anew.
TEST(SharedRingTest, MessagesArriveWholeAndInOrderInAnotherProcess) {
  for (const int64_t spin_ns : {int64_t{0}, int64_t{20'000}}) {
    SharedMemory there = RingMemory();
    SharedMemory back = RingMemory();
    constexpr uint64_t kMessages = 3000;
    const pid_t child = fork();
    if (child == 0) {
      const SharedMemory in = *SharedMemory::Map(Descriptor(dup(there.fd())));
      const SharedMemory out = *SharedMemory::Map(Descriptor(dup(back.fd())));
      SharedRing reader(in.data(), kShape), writer(out.data(), kShape);
      for (uint64_t i = 0; i < kMessages; ++i) {
        while (reader.published() == i) reader.AwaitChange(i, spin_ns);
        if (!Holds(reader.slot(i), i)) _exit(1);
        Fill(writer.slot(i), i + 1);
        writer.Publish();
      }
      _exit(0);
    }
    SharedRing writer(there.data(), kShape), reader(back.data(), kShape);
    for (uint64_t i = 0; i < kMessages; ++i) {
      Fill(writer.slot(i), i);
      writer.Publish();
      while (reader.published() == i) reader.AwaitChange(i, spin_ns);
      EXPECT_TRUE(Holds(reader.slot(i), i + 1));
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(SharedRingTest, AReaderPollsAfterALostWake) {
  const SharedMemory memory = RingMemory();
  SharedRing ring(memory.data(), kShape);
  const int64_t before_ns = SteadyNowNs();
  EXPECT_EQ(ring.AwaitChange(0, 0), 0u);
  EXPECT_GE(SteadyNowNs() - before_ns, SharedRing::kPatienceNs / 2);
}

TEST(SharedMemoryTest, CannotBeShrunk) {
  SharedMemory memory = RingMemory();
  EXPECT_NE(ftruncate(memory.fd(), 0), 0);
  EXPECT_NE(ftruncate(memory.fd(), 1 << 20), 0);
  EXPECT_FALSE(memory.Allocate(64).ok());
}

TEST(StepMemoryTest, AnotherShapeIsRefused) {
  StepMemory::Shape shape{.ranks = 2, .depth = 2, .bounds = {4, 64, 16}};
  SharedMemory memory = *SharedMemory::Create("quire test");
  const int fd = dup(memory.fd());
  ASSERT_TRUE(StepMemory::Create(std::move(memory), shape).ok());
  EXPECT_TRUE(StepMemory::Attach(*SharedMemory::Map(Descriptor(dup(fd))), shape).ok());
  shape.ranks = 3;
  const auto other = StepMemory::Attach(*SharedMemory::Map(Descriptor(fd)), shape);
  EXPECT_FALSE(other.ok());
}

TEST(StepMemoryTest, RingsAndHeartbeatsDoNotOverlap) {
  const StepMemory::Shape shape{.ranks = 2, .depth = 2, .bounds = {4, 64, 16}};
  const StepMemory memory = *StepMemory::Create(*SharedMemory::Create("quire test"), shape);
  for (uint64_t i = 0; i < 3; ++i) Fill(memory.plans().slot(i), 1);
  for (int rank = 0; rank < 2; ++rank) {
    for (uint64_t i = 0; i < 2; ++i) Fill(memory.results(rank).slot(i), 2);
  }
  EXPECT_EQ(memory.plans().published(), 0u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(memory.results(rank).published(), 0u);
    EXPECT_EQ(memory.heartbeat(rank).finished.load(), 0u);
    memory.heartbeat(rank).launched = ~uint64_t{0};
  }
  for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(Holds(memory.plans().slot(i), 1));
  for (uint64_t i = 0; i < 2; ++i) EXPECT_TRUE(Holds(memory.results(1).slot(i), 2));
}

}  // namespace
}  // namespace quire
