// Ranks that share memory, as threads or as processes.
#include "kernels/cpu/rank_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/buffer.h"
#include "kernels/check.h"
#include "kernels/cpu/spin_wait.h"

namespace quire::cpu {
namespace {

// The shared memory: this head, then two slots for each rank. Zero is the state of a new group.
struct Head {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> round;
  alignas(64) std::byte rest[64];
};

size_t GroupBytes(int32_t ranks) {
  return sizeof(Head) + 2 * static_cast<size_t>(ranks) * RankGroup::kMaxBytes;
}

using Memory = std::shared_ptr<Buffer>;

// Empty when the system refuses. `fd`: -1 for memory of this process alone.
Memory Map(int fd, int32_t ranks) {
  const size_t bytes = GroupBytes(ranks);
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  return std::make_shared<Buffer>(data, bytes, [](void* p, size_t n) { munmap(p, n); });
}

// Slots alternate: a rank that writes a slot again has passed the exchange between, so every rank
// has read the slot before.
class SharedMemoryGroup final : public RankGroup {
 public:
  SharedMemoryGroup(Memory memory, const RankPlace& place, bool may_spin)
      : RankGroup(place.rank, place.ranks),
        memory_(std::move(memory)),
        head_(*static_cast<Head*>(memory_->data())),
        may_spin_(may_spin),
        given_(static_cast<size_t>(place.ranks)) {}

  std::byte* Mine() override { return Slot(rank()); }

  std::span<const std::byte* const> Exchange(size_t bytes) override {
    CHECK_LE(bytes, kMaxBytes);
    Meet();
    for (int32_t r = 0; r < ranks(); ++r) given_[r] = Slot(r);
    turn_ = 1 - turn_;
    return given_;
  }

 private:
  std::byte* Slot(int32_t rank) const {
    const auto index = static_cast<size_t>(turn_ * ranks() + rank);
    return static_cast<std::byte*>(memory_->data()) + sizeof(Head) + index * kMaxBytes;
  }

  // Returns when all ranks have arrived.
  void Meet() {
    const uint32_t round = head_.round.load(std::memory_order_relaxed);
    if (head_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<uint32_t>(ranks())) {
      head_.arrived.store(0, std::memory_order_relaxed);
      head_.round.store(round + 1, std::memory_order_release);
      FutexWake(head_.round);
      return;
    }
    SpinThenSleep(head_.round, round, may_spin_);
  }

  const Memory memory_;
  Head& head_;
  const bool may_spin_;
  int32_t turn_ = 0;
  std::vector<const std::byte*> given_;
};

std::string Failed(const std::string& what) {
  return "memory for the exchange between ranks: " + what + ": " + std::strerror(errno);
}

}  // namespace

std::vector<std::unique_ptr<RankGroup>> JoinThreads(int32_t ranks, bool may_spin) {
  const Memory memory = Map(-1, ranks);
  CHECK(memory != nullptr);  // untouched memory of a few MiB
  std::vector<std::unique_ptr<RankGroup>> group;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    group.push_back(std::make_unique<SharedMemoryGroup>(
        memory, RankPlace{.rank = rank, .ranks = ranks}, may_spin));
  }
  return group;
}

// The descriptor has no name that could be left behind: the other ranks open it through /proc while
// rank 0 holds it. A rank shares "!" and a reason instead when it fails.
std::unique_ptr<RankGroup> JoinProcesses(const RankPlace& place, bool may_spin, std::string* why) {
  const auto failed = [&](const std::vector<std::string>& shared) {
    for (const std::string& each : shared) {
      if (!each.starts_with('!')) continue;
      *why = each.substr(1);
      return true;
    }
    return false;
  };
  int fd = -1;
  std::string mine;
  if (place.rank == 0) {
    fd = memfd_create("quire ranks", MFD_CLOEXEC);
    const bool sized = fd >= 0 && ftruncate(fd, static_cast<off_t>(GroupBytes(place.ranks))) == 0;
    mine = sized ? "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd)
                 : "!" + Failed("creating it");
  }
  const std::vector<std::string> paths = place.exchange->Share(mine);
  if (failed(paths)) {
    if (fd >= 0) close(fd);
    return nullptr;
  }
  if (place.rank != 0) fd = open(paths.front().c_str(), O_RDWR | O_CLOEXEC);
  const Memory memory = fd >= 0 ? Map(fd, place.ranks) : nullptr;
  mine = memory == nullptr ? "!" + Failed("mapping " + paths.front()) : "";
  const bool alone = failed(place.exchange->Share(mine));
  if (fd >= 0) close(fd);
  if (alone) return nullptr;
  return std::make_unique<SharedMemoryGroup>(memory, place, may_spin);
}

}  // namespace quire::cpu
