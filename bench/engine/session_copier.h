// SessionCopier: the scheduler's side of copies, reduced to what benchmarks need: it sends whole
// sessions, with two jobs of each direction in flight.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/wake_event.h"
#include "engine/worker/copy/copy_dispatch.h"
#include "engine/worker/copy/copy_engine.h"
#include "kernels/check.h"

namespace quire {

class SessionCopier {
 public:
  // Stores come from one half of the pages and blocks, loads from the other: 2 * session_blocks
  // from first_block on.
  struct Places {
    int32_t first_block = 1;
    int32_t session_blocks = 0;
    int32_t num_pages = 0;  // at least 2 * session_blocks
  };

  SessionCopier(CopyRunner& runner, const Places& places)
      : block_bytes_(runner.block_bytes()),
        places_(places),
        memory_(static_cast<size_t>(CopyRings::Bytes()) / sizeof(Line)),
        rings_(memory_.front().bytes),
        engine_(runner, rings_, [this] { wake_.Notify(); }),
        dispatch_({rings_}, block_bytes_) {}
  ~SessionCopier() { dispatch_.End(); }

  // GB/s of `sessions` sessions in each requested direction.
  double Rate(bool stores, bool loads, int32_t sessions) {
    const int64_t begin_ns = SteadyNowNs();
    const int32_t blocks = sessions * places_.session_blocks;
    Lane lanes[] = {{CopyDirection::kLoad, loads ? blocks : 0},
                    {CopyDirection::kStore, stores ? blocks : 0}};
    double bytes = 0;
    while (lanes[0].Busy() || lanes[1].Busy()) {
      for (Lane& lane : lanes) Feed(lane);
      CopyAck ack;
      if (!dispatch_.Poll(ack)) {
        wake_.Wait(SteadyNowNs() + 100'000'000);
        continue;
      }
      CHECK(ack.status == CopyStatus::kOk);
      bytes += static_cast<double>(ack.bytes);
      --lanes[ack.job % 2].in_flight;
    }
    return bytes / static_cast<double>(SteadyNowNs() - begin_ns);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Lane {
    CopyDirection direction;
    int32_t left = 0;  // blocks
    int32_t in_flight = 0;
    int32_t next = 0;
    bool Busy() const { return left > 0 || in_flight > 0; }
  };

  // Places are not used in the order of memory.
  void Feed(Lane& lane) {
    const int32_t half = lane.direction == CopyDirection::kStore;
    const auto per_job = static_cast<int32_t>(
        std::clamp<int64_t>(CopyJob::kMaxBytes / block_bytes_, 1, CopyJob::kMaxCopies));
    const int32_t pages = places_.num_pages / 2;
    while (lane.left > 0 && lane.in_flight < CopyJob::kMaxInFlight) {
      number_ += 2;
      CopyJob job{.job = number_ + half, .direction = lane.direction};
      const int32_t count = std::min(per_job, lane.left);
      for (int32_t i = 0; i < count; ++i, ++lane.next) {
        const int32_t block = lane.next * 37 % places_.session_blocks;
        job.copies.push_back({places_.first_block + half * places_.session_blocks + block,
                              half * pages + lane.next * 59 % pages});
      }
      lane.left -= count;
      ++lane.in_flight;
      CHECK(dispatch_.Submit(job));
    }
  }

  const int64_t block_bytes_;
  const Places places_;
  WakeEvent wake_;
  std::vector<Line> memory_;
  const CopyRings rings_;
  CopyEngine engine_;
  CopyDispatch dispatch_;
  uint64_t number_ = 0;  // loads even, stores odd
};

}  // namespace quire
