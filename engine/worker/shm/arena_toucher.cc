// Threads that claim one piece after the other.
#include "engine/worker/shm/arena_toucher.h"

#include <algorithm>

#include "kernels/ceil_div.h"

namespace quire {
namespace {

// Small enough that a page is ready soon after its turn has come and the destructor waits little.
constexpr int64_t kPieceBytes = int64_t{32} << 20;
// More threads are no faster: they wait for each other in the system's allocator.
constexpr unsigned kMaxThreads = 4;

int32_t PiecePages(const HostArena& arena) {
  return static_cast<int32_t>(std::max<int64_t>(1, kPieceBytes / arena.stride()));
}

}  // namespace

ArenaToucher::ArenaToucher(const HostArena& arena)
    : arena_(arena),
      piece_pages_(PiecePages(arena)),
      finished_(CeilDiv(arena.shape().num_pages, piece_pages_)) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned threads = std::clamp(cores / 2, 1u, kMaxThreads);
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { TouchPieces(); });
}

ArenaToucher::~ArenaToucher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ArenaToucher::Await(int32_t count) {
  const int32_t pieces = CeilDiv(count, piece_pages_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return front_ >= pieces; });
}

void ArenaToucher::TouchPieces() {
  const int32_t pieces = static_cast<int32_t>(finished_.size());
  std::unique_lock lock(mutex_);
  while (!stop_ && claimed_ < pieces) {
    const int32_t piece = claimed_++;
    lock.unlock();
    const PageId first = piece * piece_pages_;
    arena_.Touch(first, std::min(piece_pages_, arena_.shape().num_pages - first));
    lock.lock();
    finished_[piece] = true;
    while (front_ < pieces && finished_[front_]) ++front_;
    changed_.notify_all();
  }
}

}  // namespace quire
