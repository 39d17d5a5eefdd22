// Sequence: the scheduler's mutable record of one request.
//
// Progress. Positions are counted from 0 through prompt and output alike:
//   proved     computed, and a finite sample behind them has shown that they are sound
//   computed   their step has retired, or their KV was found
//   planned    given to a step; KV is, or will be, in `blocks`
//   known      the token is known here: the prompt, and every token retired so far
//   expected   known + pending: the tokens that steps in flight will sample are counted too
// proved <= computed <= planned <= expected <= hard_end. The next chunk is [planned, planned + n)
// with n <= expected - planned, and it samples if it reaches `expected`. There is no other
// difference between prefill and decode.
//
// Guesses. A step may verify guesses behind the last known token. Until its result comes, `planned`
// and `pending` count all of them; then those that were right, and the token behind them, are
// known.
//
// Guide. A sequence whose output follows a guide draws with a mask, which is made when all tokens
// before are known. Where masks may come late, a draw is planned before, and `masks.late` has those
// whose masks come while their steps run. A draw without its mask yields nothing: it is planned
// again when the mask is there, as every draw is where masks may not come late, and as the next
// ones are until masks are made sooner (SequenceMasks::awaited).
//
// Holdings. LiveSequences alone takes and releases row, blocks and reservation, SequenceKv the
// nodes. `table_tokens` and `table_blocks` count the part that the workers' row table has.
//
// Waiting. A preempted or new sequence waits in the queue; `bypassed` and `steps_unserved` bound
// how long. A restoring sequence waits for the copies of ticket `restore`, without a row. An answer
// that follows another one waits for the prompt that they share (waiting_line.h).
//
// End. `end` is set once. A turn ends when no step in flight knows its sequence (Turns::End), every
// other request at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/masks/draw_masks.h"
#include "engine/schedule/guess/guesser.h"
#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/values/request.h"
#include "engine/values/session.h"

namespace quire {

// The priority of work for the gaps that requests leave: lines of jobs. No request may ask for it,
// so it comes last wherever priorities are compared. Such a sequence also gives up its row and
// blocks to any request that lacks some (BackgroundClaims).
inline constexpr int32_t kBackgroundPriority = -kMaxPriority - 1;

enum class SequenceState : uint8_t {
  kFree,       // the record is unused
  kQueued,     // in the queue unless paused, or it follows another; holds its tokens only
  kRestoring,  // holds nodes of the tree and a reservation, no row: its KV comes from the host
  kRunning,    // holds a row, blocks and perhaps a reservation
  kPreempted,  // likewise; row and blocks return when its steps in flight have retired
  kFinishing,  // its end is decided; row and blocks return likewise
};

struct Sequence {
  static constexpr int32_t kNoRow = -1;

  // --- The request.
  SequenceState state = SequenceState::kFree;
  std::unique_ptr<Request> request;
  uint64_t turn = 0;    // of its session, from Turns::Open; 0: the request is no turn
  uint64_t order = 0;   // of Add: ties of arrival
  int32_t account = 0;  // of its tenant (tenants/tenant_accounts.h)
  int32_t num_prompt = 0;
  int32_t hard_end = 0;         // known never passes it: max_tokens or the context
  bool paused = false;          // its reader is behind: neither runs nor waits in the queue
  bool has_head_start = false;  // in the queue; changes only while it does not wait there

  // --- Progress.
  int32_t planned = 0;
  int32_t computed = 0;
  int32_t proved = 0;
  int32_t offered = 0;          // full blocks that were offered to the prefix tree
  int32_t pending = 0;          // samples of steps in flight
  int32_t steps_in_flight = 0;  // steps not retired that hold work of this sequence
  // The known tokens behind the prompt, which stays in the request. From admission on it has
  // capacity for the longest output; none while it is empty and no row is held.
  std::vector<int32_t> output;
  // At [length - 1]: how many tokens at the end of the output equal the one `length` before. As
  // long as the longest loop that the request asks for.
  std::vector<int32_t> equal_before;

  SequenceMasks masks;

  // While the sequence holds a row; null: it does not guess.
  std::unique_ptr<Guesser> guesser;
  int32_t guessed = 0;   // tokens that steps verified
  int32_t accepted = 0;  // of these, right ones

  // --- Holdings.
  int32_t row = kNoRow;
  bool new_row = false;         // the worker does not know this row's new owner yet
  int32_t table_tokens = 0;     // tokens in the worker's row table, sampled ones included
  int32_t table_blocks = 0;     // blocks in the worker's row table
  int32_t reserved = 0;         // blocks promised by the pool and not taken yet
  std::vector<BlockId> blocks;  // the block table
  NodeId node = kNoNode;        // the deepest node that it holds of the prefix tree
  NodeId cloned = kNoNode;      // held until the step that copies its block has retired
  int32_t tail_tokens = 0;      // of its session's tail, if it took that over

  // --- Waiting.
  int32_t preemptions = 0;
  int32_t requeues = 0;              // after a worker death
  Sequence* leader = nullptr;        // that computes the prompt it waits for; null: it follows none
  std::vector<Sequence*> followers;  // that wait for its first token, in the order of Add
  int32_t bypassed = 0;              // admissions that overtook it while it waited at the head
  int32_t steps_unserved = 0;        // steps in a row in which its prefill got no tokens
  uint64_t restore = 0;              // the ticket that it waits for
  int64_t restore_begin_ns = 0;
  int32_t found_before_restore = 0;  // tokens on the device when the restore began
  bool computes = false;             // a restore failed: it computes all KV not on the device
  bool awaits_tail = false;          // the last block that it waits for is its session's tail

  // --- For its client.
  Residency residency;  // of its first admission
  RequestTimings timings;
  FinishReason end = FinishReason::kNone;

  int32_t known() const { return num_prompt + num_output(); }
  int32_t expected() const { return known() + pending; }
  int32_t remaining() const { return expected() - planned; }
  int32_t num_output() const { return static_cast<int32_t>(output.size()); }
  bool background() const { return request->priority <= kBackgroundPriority; }
  bool guided() const { return request->guide != nullptr; }
  // The mask of the next draw is there, if it needs one: all tokens before are known here.
  bool has_mask() const { return !guided() || (masks.guide != nullptr && pending == 0); }
  // A plan of its next work carries a mask.
  bool brings_mask() const { return guided() && has_mask(); }
  // Its next work is one draw, whose mask may come while the step runs.
  bool may_draw_late() const {
    return !masks.awaited && pending < LateDraws::kMost && remaining() == 1;
  }
  bool has_guesses() const { return guesser != nullptr && !guesser->in_flight().empty(); }
  // More work can be planned: no step in flight reaches its certain end.
  bool plannable() const { return expected() < hard_end; }
  bool live() const { return state != SequenceState::kFree && state != SequenceState::kFinishing; }
};

// The order of sequences everywhere: higher priority, then earlier arrival, then earlier Add.
bool RunsBefore(const Sequence& a, const Sequence& b);

// The reason why the sequence ends with its last known token, kNone if it continues. Checked in
// this order: EOS, stop ids, loop, max_tokens, context. The first two do not end it with the token
// min_tokens or before, a loop not before that token. The last two are kTruncated if they leave its
// structure incomplete. Called once for each token.
FinishReason TakeToken(Sequence& sequence);

}  // namespace quire
