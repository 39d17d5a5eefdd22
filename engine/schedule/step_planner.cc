// The choice of a step's work.
#include "engine/schedule/step_planner.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {

StepPlanner::StepPlanner(const SchedulerConfig& config, LiveSequences& sequences)
    : config_(config), sequences_(sequences), kv_(sequences.kv()), tiering_(kv_.tiering()) {
  decodes_.reserve(config.max_num_seqs);
  prefills_.reserve(config.max_num_seqs);
}

void StepPlanner::Plan(int64_t now_ns, StepPlan& plan, StepRecord& record,
                       SchedulerEvents& events) {
  now_ns_ = now_ns;
  decodes_.clear();
  prefills_.clear();
  budget_ = config_.max_num_batched_tokens;
  found_budget_ = MaxFoundTokens(config_.max_model_len);
  claimed_blocks_ = unfinished_prefills_ = num_preempted_ = num_admitted_ = 0;
  made_room_ = false;
  ChooseRunning();
  ChoosePrefills();
  // Blocks of a preempted sequence go to the sequence that needed them, not to a new one.
  if (!made_room_) ChooseAdmissions(now_ns);
  SpendLeftover();
  for (const Choice& choice : decodes_) Emit(choice, plan, record);
  for (const Choice& choice : prefills_) Emit(choice, plan, record);
  events.preempted += num_preempted_;
  events.admitted += num_admitted_;
}

// Gives one token to every running sequence that has one token left to compute, and collects those
// that have more. Victims come from the end of the same order, so they have not been chosen yet.
void StepPlanner::ChooseRunning() {
  const std::vector<Sequence*>& running = sequences_.running();
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (!sequence.plannable()) continue;
    if (sequence.remaining() > 1) {
      prefills_.push_back({&sequence, 0});
    } else if (budget_ > 0 && EnsureBlock(sequence)) {
      decodes_.push_back({&sequence, 1});
      --budget_;
    }
  }
}

// Takes the block for the next position, from another sequence or a store if none is available.
// False: the sequence waits in its row for a step or more. It never gives up its own blocks: a
// sequence before it in order finishes, or preempts it.
bool StepPlanner::EnsureBlock(Sequence& sequence) {
  const int32_t capacity = static_cast<int32_t>(sequence.blocks.size()) * config_.block_size;
  if (sequence.planned < capacity) return true;
  while (!sequences_.TakeBlock(sequence)) {
    // Wait for blocks that steps in flight are about to return, before preempting for one.
    if (claimed_blocks_ < sequences_.draining_blocks()) {
      ++claimed_blocks_;
      return false;
    }
    // A restoring sequence loses nothing: it has no row yet, and its KV is still on the host.
    if (!sequences_.restoring().empty()) {
      sequences_.Withdraw(*sequences_.restoring().back());
      made_room_ = true;
      continue;
    }
    // Giving up a copy of preempted KV costs less than preempting another sequence.
    if (tiering_.GiveUpStore()) {
      made_room_ = true;
      continue;
    }
    Sequence* victim = Victim(sequence);
    if (victim == nullptr) return false;
    sequences_.Preempt(*victim);
    victim->timings.preempted_ns = now_ns_;
    made_room_ = true;
    ++num_preempted_;
  }
  return true;
}

// The last sequence in order that may be preempted for `beneficiary`; null if there is none behind
// it.
Sequence* StepPlanner::Victim(const Sequence& beneficiary) const {
  const std::vector<Sequence*>& running = sequences_.running();
  for (auto victim = running.rbegin(); *victim != &beneficiary; ++victim) {
    const bool lower_priority = (*victim)->request->priority < beneficiary.request->priority;
    if (lower_priority || (*victim)->preemptions < kMaxPreemptions) return *victim;
  }
  return nullptr;
}

// Shares the remaining budget among the running prefills: the shortest first, and while a shorter
// one waits, all very long ones together get at most half.
void StepPlanner::ChoosePrefills() {
  prefill_budget_ = budget_;
  long_budget_ = std::max(1, prefill_budget_ / 2);
  shortest_prefill_ = ShortestWaiting();
  for (const Choice& choice : prefills_) {
    shortest_prefill_ = std::min(shortest_prefill_, choice.sequence->remaining());
  }
  SortPrefills();
  for (Choice& choice : prefills_) {
    const int32_t remaining = choice.sequence->remaining();
    choice.count = Capped(remaining);
    budget_ -= choice.count;
    if (remaining > prefill_budget_) long_budget_ = std::max(0, long_budget_ - choice.count);
    unfinished_prefills_ += choice.count < remaining;
  }
}

void StepPlanner::SortPrefills() {
  const auto first = [](const Choice& a, const Choice& b) {
    const bool a_aged = a.sequence->steps_unserved >= kMaxStepsUnserved;
    const bool b_aged = b.sequence->steps_unserved >= kMaxStepsUnserved;
    if (a_aged != b_aged) return a_aged;
    const int32_t a_remaining = a.sequence->remaining();
    const int32_t b_remaining = b.sequence->remaining();
    if (!a_aged && a_remaining != b_remaining) return a_remaining < b_remaining;
    return RunsBefore(*a.sequence, *b.sequence);
  };
  std::sort(prefills_.begin(), prefills_.end(), first);
}

// How many of `tokens` tokens of a prefill fit into the rest of the step.
int32_t StepPlanner::Capped(int32_t tokens) const {
  const bool must_share = tokens > prefill_budget_ && shortest_prefill_ < tokens;
  return std::min({tokens, budget_, must_share ? long_budget_ : budget_});
}

int32_t StepPlanner::ShortestWaiting() const {
  int32_t shortest = std::numeric_limits<int32_t>::max();
  if (made_room_ || sequences_.num_free_rows() == 0) return shortest;
  int32_t looked_at = 0;
  for (auto entry = sequences_.queue().begin();
       entry != sequences_.queue().end() && looked_at < kLookAhead; ++entry, ++looked_at) {
    shortest = std::min(shortest, entry->sequence->known());
  }
  return shortest;
}

// Takes the blocks of overdue stores for the first waiting request.
void StepPlanner::TakeBackFromSlowCopies(int64_t now_ns) {
  const RequestQueue& queue = sequences_.queue();
  if (queue.empty() || sequences_.num_free_rows() == 0) return;
  const int32_t wanted = BlocksToReserve(*queue.begin()->sequence) + Watermark();
  while (sequences_.pool().available() < wanted && tiering_.GiveUpSlowStore(now_ns)) {
  }
}

void StepPlanner::ChooseAdmissions(int64_t now_ns) {
  BeginRestored(now_ns);
  TakeBackFromSlowCopies(now_ns);
  std::array<Sequence*, kLookAhead> passed_over;
  int32_t num_passed_over = 0;
  const RequestQueue& queue = sequences_.queue();
  auto entry = queue.begin();
  for (int32_t looked_at = 0; looked_at < kLookAhead && entry != queue.end(); ++looked_at) {
    if (budget_ == 0 || sequences_.num_free_rows() == 0) return;
    Sequence& sequence = *entry->sequence;
    ++entry;  // admission takes the sequence out of the queue
    // Blocks come back for a preempted sequence; no sequence behind it may take them.
    if (sequence.state == SequenceState::kPreempted) return;
    if (TryAdmit(sequence, now_ns)) {
      for (int32_t i = 0; i < num_passed_over; ++i) ++passed_over[i]->bypassed;
      continue;
    }
    if (!MayBeOvertaken(sequence)) return;
    passed_over[num_passed_over++] = &sequence;
  }
}

// Begins the sequences whose KV has come back from the host, before all that wait.
void StepPlanner::BeginRestored(int64_t now_ns) {
  const std::vector<Sequence*>& restoring = sequences_.restoring();
  for (size_t i = 0; i < restoring.size();) {
    Sequence& sequence = *restoring[i];
    const size_t before = restoring.size();
    if (tiering_.EndRestoreIfDone(sequence.restore, now_ns)) {
      const bool ended = sequence.restore == 0;
      if (!ended && !kv_.EndRestore(sequence, BlocksToReserve(sequence), now_ns)) {
        sequences_.Withdraw(sequence);
      } else if (budget_ > 0 && sequences_.num_free_rows() > 0) {
        const int32_t more = std::max(0, sequences_.pool().available() - Watermark());
        TryBegin(sequence, kv_.Look(sequence), sequence.reserved + more, now_ns);
      }
    }
    i += restoring.size() == before;
  }
}

bool StepPlanner::TryAdmit(Sequence& sequence, int64_t now_ns) {
  const int32_t room = sequences_.pool().available() - Watermark();
  const int32_t blocks = BlocksToReserve(sequence);
  // Looking costs time: skip it where no result could make the sequence fit.
  if (blocks - kv_.MostBlocks(sequence) > room) return false;
  const SequenceKv::Found found = kv_.Look(sequence);
  if (found.target != kNoNode && !sequence.computes) {
    const auto restore = sequences_.BeginRestore(sequence, found, blocks, room, now_ns);
    if (restore != SequenceKv::Restore::kCompute) return restore == SequenceKv::Restore::kBegun;
  }
  return TryBegin(sequence, found, room, now_ns);
}

// Admits the sequence if it fits. `room`: blocks that it may make unavailable.
bool StepPlanner::TryBegin(Sequence& sequence, SequenceKv::Found found, int32_t room,
                           int64_t now_ns) {
  // Holding a found block makes it unavailable, as taking one would.
  const int32_t all = BlocksToReserve(sequence);
  const auto fits = [&] { return all - found.num_blocks + found.hold_cost <= room; };
  if (!fits()) found = kv_.WithoutClone(found);
  const int32_t tokens = sequence.known() - found.num_tokens;
  const int32_t count = FirstChunk(sequence, tokens);
  if (count == 0 || found.num_tokens > found_budget_) return false;
  if (!fits()) return false;
  sequences_.Admit(sequence, found, all - found.num_blocks);
  if (sequence.timings.admitted_ns == 0) {
    sequence.timings.admitted_ns = now_ns;
    kv_.Account(sequence, found);
  }
  prefills_.push_back({&sequence, count});
  budget_ -= count;
  found_budget_ -= found.num_tokens;
  if (tokens > prefill_budget_) long_budget_ = std::max(0, long_budget_ - count);
  unfinished_prefills_ += count < tokens;
  ++num_admitted_;
  return true;
}

bool StepPlanner::MayBeOvertaken(const Sequence& sequence) const {
  return sequence.bypassed < (sequence.has_head_start ? kMaxBypassesOfHeadStart : kMaxBypasses);
}

// How many of its `tokens` tokens to compute a waiting sequence can begin with; 0: it must wait.
int32_t StepPlanner::FirstChunk(const Sequence& sequence, int32_t tokens) const {
  // A sequence that was overtaken often no longer makes room for shorter ones.
  const int32_t count = MayBeOvertaken(sequence) ? Capped(tokens) : std::min(tokens, budget_);
  const bool unfinished = count < tokens;
  return unfinished && unfinished_prefills_ >= config_.max_partial_prefills ? 0 : count;
}

// Blocks for the whole prompt and some growth; all it can ever need if it was preempted too often.
int32_t StepPlanner::BlocksToReserve(const Sequence& sequence) const {
  const int32_t last = sequence.hard_end - 1;  // the last token is never computed
  const int32_t grown =
      sequence.preemptions >= kMaxPreemptions
          ? last
          : std::min(last - sequence.known(), config_.growth_horizon) + sequence.known();
  return CeilDiv(grown, config_.block_size);
}

// Blocks kept free so that every running sequence can begin a new block without a preemption. None
// when nothing runs, or else the largest request could never start.
int32_t StepPlanner::Watermark() const {
  const int32_t num_running = static_cast<int32_t>(sequences_.running().size());
  return num_running == 0 ? 0 : std::max(sequences_.pool().total() / 100, num_running);
}

// Gives unused budget to the chosen prefills: no other sequence needs it.
void StepPlanner::SpendLeftover() {
  for (Choice& choice : prefills_) {
    const int32_t more = std::min(budget_, choice.sequence->remaining() - choice.count);
    choice.count += more;
    budget_ -= more;
    int32_t& unserved = choice.sequence->steps_unserved;
    unserved = choice.count > 0 ? 0 : unserved + 1;
  }
}

}  // namespace quire
