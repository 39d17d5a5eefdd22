// CopyJob and CopyAck: copies between the device's KV pool and pages of host memory, and their
// results, as plain data. As with steps, the scheduler decides and the workers execute.
//
// Fences are the host's: a job is sent only when every step that wrote one of its blocks, or that
// may still read one, has retired; a plan reads a loaded block only after the ack. So a copy never
// waits for a step, nor a step for a copy.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// A page of the host arena: as many bytes as a block, laid out alike. Every rank has its own part
// of the arena, and the same page number in it.
using PageId = int32_t;

inline constexpr PageId kNoPage = -1;

enum class CopyDirection : uint8_t {
  kStore,  // device to host
  kLoad,   // host to device
};

struct BlockCopy {
  int32_t block = 0;
  PageId page = kNoPage;
};

struct CopyJob {
  // The limits of one job, so that a job takes milliseconds.
  static constexpr int32_t kMaxCopies = 256;
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;
  // Jobs of one direction that may be in flight.
  static constexpr int32_t kMaxInFlight = 2;

  uint64_t job = 0;  // consecutive from 1 in each life of a worker group
  CopyDirection direction = CopyDirection::kStore;
  std::vector<BlockCopy> copies;  // disjoint
};

enum class CopyStatus : uint8_t {
  kOk,
  kFailed,   // no block or page that the job should have written may be read
  kCorrupt,  // kLoad: a page's checksum was wrong; copies before `num_good` are good
};

struct CopyAck {
  uint64_t job = 0;
  CopyStatus status = CopyStatus::kOk;
  int32_t num_good = 0;  // copies, in the job's order, whose bytes are there; least of all ranks
  int64_t bytes = 0;     // of all ranks
  int64_t ns = 0;        // of the slowest rank, without its time in the queue
};

}  // namespace quire
