// Sequence: the scheduler's mutable record of one request.
//
// Positions are counted from 0 through prompt and output alike:
//   proved     computed, and a finite sample behind them has shown that they are sound
//   computed   their step has retired, or their KV was found
//   planned    given to a step; KV is, or will be, in `blocks`
//   known      the token is known here: the prompt, and every token retired so far
//   expected   known + pending: the tokens that steps in flight will sample are counted too
// proved <= computed <= planned <= expected <= hard_end. The next chunk is [planned, planned + n)
// with n <= expected - planned, and it samples if it reaches `expected`. There is no other
// difference between prefill and decode.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/values/request.h"
#include "engine/values/session.h"

namespace quire {

enum class SequenceState : uint8_t {
  kFree,       // the record belongs to nobody
  kQueued,     // in the queue unless paused; holds its tokens only
  kRestoring,  // holds nodes of the tree and a reservation, no row: its KV comes from the host
  kRunning,    // holds a row, blocks and perhaps a reservation
  kPreempted,  // likewise; row and blocks return when its steps in flight have retired
  kFinishing,  // its end is delivered; row and blocks return likewise
};

struct Sequence {
  static constexpr int32_t kNoRow = -1;

  SequenceState state = SequenceState::kFree;
  int32_t row = kNoRow;
  int32_t planned = 0;
  int32_t computed = 0;
  int32_t proved = 0;
  int32_t offered = 0;          // full blocks that were offered to the prefix tree
  int32_t pending = 0;          // samples of steps in flight
  int32_t steps_in_flight = 0;  // steps not retired that hold work of this sequence
  int32_t hard_end = 0;         // known never passes it: max_tokens or the context
  int32_t num_prompt = 0;
  int32_t table_tokens = 0;  // tokens in the worker's row table, sampled ones included
  int32_t table_blocks = 0;  // blocks in the worker's row table
  int32_t reserved = 0;      // blocks promised by the pool and not taken yet
  bool new_row = false;      // the worker has not heard of this row's new owner
  bool paused = false;       // its reader is behind: neither runs nor waits in the queue
  // The known tokens behind the prompt, which stays in the request. Capacity for all there can ever
  // be from admission on; none while nothing is known and no row is held.
  std::vector<int32_t> output;
  std::vector<BlockId> blocks;  // the block table
  NodeId node = kNoNode;        // the deepest it holds of the prefix tree

  std::unique_ptr<Request> request;
  uint64_t turn = 0;   // of its session, from Turns::Open; 0: the request is no turn
  uint64_t order = 0;  // of Add: ties of arrival
  int32_t preemptions = 0;
  int32_t requeues = 0;        // after a worker death
  int32_t bypassed = 0;        // admissions that overtook it while it waited at the head
  int32_t steps_unserved = 0;  // steps in a row in which its prefill got no tokens
  uint64_t restore = 0;        // the ticket of what it waits for
  int64_t restore_begin_ns = 0;
  int32_t found_before_restore = 0;  // tokens: on the device, when the restore began
  bool computes = false;             // a restore has failed it: what it does not find it computes
  bool awaits_tail = false;          // the last block of what it waits for is its session's tail
  int32_t tail_tokens = 0;           // with which it took over its session's tail, 0: it did not
  NodeId cloned = kNoNode;  // held until the step that copies its block to this one's has retired
  Residency residency;      // when it was first admitted
  // Of the end of a turn, which is delivered when its steps in flight have retired.
  FinishReason end = FinishReason::kNone;
  RequestTimings timings;

  int32_t known() const { return num_prompt + num_output(); }
  int32_t expected() const { return known() + pending; }
  int32_t remaining() const { return expected() - planned; }
  int32_t num_output() const { return static_cast<int32_t>(output.size()); }
  // More work can be planned: its certain end is not yet in a step in flight.
  bool plannable() const { return expected() < hard_end; }
  bool live() const { return state != SequenceState::kFree && state != SequenceState::kFinishing; }
};

// Whether `a` comes before `b` wherever one has to: higher priority, earlier arrival, earlier Add.
bool RunsBefore(const Sequence& a, const Sequence& b);

// Why the sequence ends with its last known token, kNone if it goes on. EOS, stop ids, max_tokens,
// context, in this order; neither EOS nor stop ids before min_tokens.
FinishReason StopReason(const Sequence& sequence);

}  // namespace quire
