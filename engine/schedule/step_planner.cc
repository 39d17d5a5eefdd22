// The choice of a step's work.
#include "engine/schedule/step_planner.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"

namespace quire {

StepPlanner::StepPlanner(const SchedulerConfig& config, LiveSequences& sequences,
                         PromptPacer& pacer, GuessChoice& guesses)
    : config_(config),
      sequences_(sequences),
      kv_(sequences.kv()),
      tiering_(kv_.tiering()),
      accounts_(sequences.accounts()),
      walk_(sequences.queue(), accounts_),
      claims_(config, sequences, walk_),
      background_(config, sequences, walk_),
      pacer_(pacer),
      guesses_(guesses) {
  decodes_.reserve(config.max_num_seqs);
  prefills_.reserve(config.max_num_seqs);
  passed_over_.reserve(kLookAhead);
}

void StepPlanner::Plan(int64_t now_ns, StepPlan& plan, StepRecord& record,
                       SchedulerEvents& events) {
  now_ns_ = now_ns;
  decodes_.clear();
  prefills_.clear();
  budget_ = config_.max_num_batched_tokens;
  found_budget_ = MaxFoundTokens(config_.max_model_len);
  mask_budget_ = MaxMasks(config_.max_num_seqs, config_.vocab_size);
  claimed_blocks_ = unfinished_prefills_ = num_admitted_ = 0;
  accounts_.RaiseLevel();
  num_preempted_ =
      background_.MakeRoom(now_ns) + (accounts_.several() ? claims_.MakeRoom(now_ns) : 0);
  made_room_ = num_preempted_ > 0;
  starved_ = pins_in_the_way_ = false;
  ChooseRunning();
  ShareBudget(now_ns);
  SpendLeftover();
  for (const Choice& choice : decodes_) Emit(choice, plan, record);
  for (const Choice& choice : prefills_) Emit(choice, plan, record);
  events.preempted += num_preempted_;
  events.admitted += num_admitted_;
}

// Gives one token to every running sequence that has one token left to compute, and collects those
// that have more; the former may guess. Victims come from the end of the same order, so they have
// not been chosen yet.
void StepPlanner::ChooseRunning() {
  const std::vector<Sequence*>& running = sequences_.running();
  guesses_.Begin();
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (!sequence.plannable() || !HasMaskToSend(sequence)) continue;
    if (guesses_.HoldsBack(sequence)) continue;
    mask_budget_ -= sequence.brings_mask();
    if (sequence.remaining() > 1) {
      prefills_.push_back({&sequence, 0});
      pacer_.AddPrompt(sequence);
    } else if (budget_ > 0 && EnsureBlock(sequence)) {
      decodes_.push_back({&sequence, 1});
      pacer_.AddRow(sequence);
      --budget_;
      accounts_.ChargeDecode(sequence.account);
    }
  }
  // Only now: a guess takes no block that a row needs.
  for (Choice& choice : decodes_) {
    choice.guesses = guesses_.Take(*choice.sequence);
    choice.count += choice.guesses;
    budget_ -= choice.guesses;
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
    // Giving up a copy of preempted KV costs less than preempting another sequence.
    const bool withdraws = !sequences_.restoring().empty();
    if (withdraws) sequences_.Withdraw(*sequences_.restoring().back());
    if (withdraws || tiering_.GiveUpStore()) {
      made_room_ = true;
      continue;
    }
    Sequence* victim = Victim(sequence);
    if (starved_ = victim == nullptr; starved_) return false;
    Preempt(*victim);
  }
  return true;
}

void StepPlanner::Preempt(Sequence& victim) {
  sequences_.Preempt(victim);
  victim.timings.preempted_ns = now_ns_;
  made_room_ = true;
  ++num_preempted_;
}

// The last sequence in order that may be preempted for `beneficiary`; null if there is none behind
// it.
Sequence* StepPlanner::Victim(const Sequence& beneficiary) const {
  const std::vector<Sequence*>& running = sequences_.running();
  for (auto victim = running.rbegin(); *victim != &beneficiary; ++victim) {
    const bool lower_priority = (*victim)->request->priority < beneficiary.request->priority;
    if (lower_priority) return *victim;
    const bool spent = (*victim)->preemptions >= kMaxPreemptions;
    if (!spent && !claims_.IsSheltered(**victim, beneficiary)) return *victim;
  }
  return nullptr;
}

// Shares the remaining budget among the running prefills and the sequences that wait. Within a
// tenant: the running ones first, of these the shortest first, and while a shorter one waits, all
// very long ones together get at most half.
void StepPlanner::ShareBudget(int64_t now_ns) {
  prefill_budget_ = budget_;
  budget_ = pacer_.Budget(sequences_, budget_);
  long_budget_ = std::max(1, budget_ / 2);
  FindShortest();
  FindFloods();
  background_.ShareBudget(now_ns, budget_);
  SortPrefills();
  const size_t num_running = prefills_.size();
  size_t next = 0;
  // Blocks of a preempted sequence go to the sequence that needed them, not to a new one.
  bool admits = !made_room_;
  bool begun = false;
  if (admits) walk_.Restart();
  while (next < num_running || admits) {
    const Sequence* waiting = admits ? walk_.Peek() : nullptr;
    if (next < num_running) {
      const size_t best = NextPrefill(next, num_running);
      if (waiting == nullptr || ComesBefore(*prefills_[best].sequence, *waiting)) {
        const auto begin = prefills_.begin();
        std::rotate(begin + next, begin + best, begin + best + 1);
        ServePrefill(prefills_[next++]);
        continue;
      }
    }
    if (!begun)
      BeginAdmissions(now_ns);
    else
      admits = AdmitNext(now_ns);
    begun = true;
  }
}

void StepPlanner::ServePrefill(Choice& choice) {
  const Sequence& sequence = *choice.sequence;
  const int32_t remaining = sequence.remaining();
  choice.count = Capped(sequence, remaining);
  if (remaining > prefill_budget_) long_budget_ = std::max(0, long_budget_ - choice.count);
  unfinished_prefills_ += choice.count < remaining;
  Spend(sequence, choice.count);
}

// Of the running prefills [first, end), the place of the one that comes next.
size_t StepPlanner::NextPrefill(size_t first, size_t end) const {
  size_t best = first;
  for (size_t i = first + 1; accounts_.several() && i < end; ++i) {
    const Sequence& a = *prefills_[i].sequence;
    const Sequence& b = *prefills_[best].sequence;
    if (a.account == b.account) continue;
    const int32_t ahead = a.request->priority - b.request->priority;
    const bool less = accounts_[a.account].served < accounts_[b.account].served;
    if (ahead > 0 || (ahead == 0 && less)) best = i;
  }
  return best;
}

bool StepPlanner::ComesBefore(const Sequence& prefill, const Sequence& waiting) const {
  if (prefill.background() && !waiting.background()) return false;
  if (prefill.account == waiting.account) return true;
  const int32_t ahead = prefill.request->priority - waiting.request->priority;
  if (ahead != 0) return ahead > 0;
  return accounts_[prefill.account].served <= accounts_[waiting.account].served;
}

void StepPlanner::SortPrefills() {
  const auto first = [](const Choice& a, const Choice& b) {
    if (a.sequence->background() != b.sequence->background()) return b.sequence->background();
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
int32_t StepPlanner::Capped(const Sequence& sequence, int32_t tokens) const {
  const int32_t shortest = accounts_[sequence.account].shortest_prefill;
  const bool must_share = tokens > prefill_budget_ && shortest < tokens;
  return std::min({tokens, MostOf(sequence), must_share ? long_budget_ : budget_});
}

// The tokens that the step has left for a prefill of this sequence and its tenant.
int32_t StepPlanner::MostOf(const Sequence& sequence) const {
  const bool held_back = shared_ && IsFlood(sequence.account);
  const int32_t most = held_back ? std::min(budget_, flood_budget_) : budget_;
  return sequence.background() ? std::min(most, background_.budget()) : most;
}

bool StepPlanner::IsFlood(AccountId id) const {
  return accounts_[id].backlog > config_.max_num_batched_tokens;
}

// Whether floods are held back: they are beside another tenant, or were of late.
void StepPlanner::FindFloods() {
  shared_ = now_ns_ < shared_until_ns_;
  if (!shared_ && !accounts_.several()) return;
  auto& a = accounts_;
  const auto count = [&a](AccountId id) { a.Scratch(id).backlog = a[id].waiting_tokens; };
  for (const AccountId id : a.contenders()) count(id);
  for (const Sequence* sequence : sequences_.running()) count(sequence->account);
  for (const Sequence* sequence : sequences_.restoring()) count(sequence->account);
  for (const Choice& choice : prefills_) {
    accounts_.Scratch(choice.sequence->account).backlog += choice.sequence->remaining();
  }
  const auto other = [this](AccountId id) { return !IsFlood(id); };
  const bool beside =
      accounts_.several() && (std::ranges::any_of(accounts_.contenders(), other) ||
                              std::ranges::any_of(sequences_.running(), other, &Sequence::account));
  if (beside) shared_until_ns_ = now_ns_ + kSharedNs;
  shared_ = now_ns_ < shared_until_ns_;
  flood_budget_ = std::max(1, config_.max_num_batched_tokens / kFloodPart);
  if (!shared_) return;
  walk_.Restart();
  const Sequence* first = walk_.Peek();
  if (first == nullptr || !other(first->account)) return;
  flood_budget_ = std::max(1, flood_budget_ / kFloodPartBesideFirst);
}

// The sequence's tenant leaves the last free row to other tenants.
bool StepPlanner::LeavesRow(const Sequence& sequence) const {
  return shared_ && sequences_.num_free_rows() == 1 && config_.max_num_seqs >= kMinRowsToLeave &&
         accounts_[sequence.account].running > 0 && IsFlood(sequence.account);
}

// Any work of a sequence with a guide counts as one that draws.
bool StepPlanner::HasMaskToSend(const Sequence& sequence) const {
  if (!sequence.guided()) return true;
  return sequence.has_mask() ? mask_budget_ > 0 : late_masks_ && sequence.may_draw_late();
}

void StepPlanner::Spend(const Sequence& sequence, int32_t tokens) {
  budget_ -= tokens;
  if (shared_ && IsFlood(sequence.account)) flood_budget_ -= tokens;
  if (sequence.background()) background_.Spend(tokens);
  accounts_.ChargePrompt(sequence.account, tokens);
}

// Finds each tenant's shortest prefill that runs or is among the next to be admitted.
void StepPlanner::FindShortest() {
  const auto note = [this](AccountId id, int32_t tokens) {
    int32_t& shortest = accounts_.Scratch(id).shortest_prefill;
    shortest = std::min(shortest, tokens);
  };
  const auto forget = [this](AccountId id) { accounts_.Scratch(id).shortest_prefill = kNoPrefill; };
  for (const Choice& choice : prefills_) forget(choice.sequence->account);
  for (const AccountId id : accounts_.contenders()) forget(id);
  for (const Sequence* sequence : sequences_.restoring()) forget(sequence->account);
  for (const Choice& choice : prefills_) {
    note(choice.sequence->account, choice.sequence->remaining());
  }
  if (made_room_ || sequences_.num_free_rows() == 0) return;
  walk_.Restart();
  for (int32_t i = 0; i < kLookAhead; ++i) {
    const Sequence* sequence = walk_.Peek();
    if (sequence == nullptr) return;
    note(sequence->account, sequence->known());
    walk_.Leave();
    walk_.Passed();
  }
}

// For the first waiting request that blocks can help: not one that waits for the end of pins.
void StepPlanner::TakeBackFromSlowCopies(int64_t now_ns) {
  if (sequences_.num_free_rows() == 0) return;
  const Sequence* const first = FirstBesidePins(config_, sequences_, walk_);
  if (first == nullptr) return;
  const int32_t wanted = BlocksToReserve(config_, *first) + BlockWatermark(sequences_);
  while (sequences_.pool().available() < wanted && tiering_.GiveUpSlowStore(now_ns)) {
  }
}

void StepPlanner::BeginAdmissions(int64_t now_ns) {
  BeginRestored(now_ns);
  walk_.Restart();  // a sequence whose restore failed waits again
  TakeBackFromSlowCopies(now_ns);
  passed_over_.clear();
  looked_at_ = 0;
}

// Admits the sequence that comes next, or passes it over. False: no more are admitted.
bool StepPlanner::AdmitNext(int64_t now_ns) {
  Sequence* sequence = walk_.Peek();
  if (sequence == nullptr || looked_at_++ == kLookAhead) return false;
  if (budget_ == 0 || sequences_.num_free_rows() == 0) return false;
  // Blocks come back for a preempted sequence; no sequence behind it may take them.
  if (sequence->state == SequenceState::kPreempted) return false;
  walk_.Leave();
  if (MostOf(*sequence) == 0 || LeavesRow(*sequence) || !HasMaskToSend(*sequence)) {
    walk_.Passed();
    return true;
  }
  if (TryAdmit(*sequence, now_ns)) {
    for (Sequence* passed : passed_over_) ++passed->bypassed;
    walk_.Took();
    return true;
  }
  walk_.Passed();
  passed_over_.push_back(sequence);
  // One that has no room beside pins waits for their end, which may never come: it makes no room
  // for itself by holding others up.
  const bool fits = FitsBesidePins(config_, sequences_, *sequence);
  pins_in_the_way_ = pins_in_the_way_ || !fits;
  return !fits || MayBeOvertaken(*sequence);
}

// Begins the sequences whose KV has come back from the host, before all that wait.
void StepPlanner::BeginRestored(int64_t now_ns) {
  const std::vector<Sequence*>& restoring = sequences_.restoring();
  for (size_t i = 0; i < restoring.size();) {
    Sequence& sequence = *restoring[i];
    const size_t before = restoring.size();
    if (tiering_.EndRestoreIfDone(sequence.restore, now_ns)) {
      if (sequence.restore != 0 &&
          !kv_.EndRestore(sequence, BlocksToReserve(config_, sequence), now_ns)) {
        sequences_.Withdraw(sequence);
      } else if (budget_ > 0 && sequences_.num_free_rows() > 0) {
        const int32_t more =
            std::max(0, sequences_.pool().available() - BlockWatermark(sequences_));
        TryBegin(sequence, kv_.Look(sequence), sequence.reserved + more, now_ns);
      }
    }
    i += restoring.size() == before;
  }
}

bool StepPlanner::TryAdmit(Sequence& sequence, int64_t now_ns) {
  const int32_t room = sequences_.pool().available() - BlockWatermark(sequences_);
  const int32_t blocks = BlocksToReserve(config_, sequence);
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
  const int32_t all = BlocksToReserve(config_, sequence);
  if (!HasMaskToSend(sequence)) return false;
  const auto fits = [&] { return all - found.num_blocks + found.hold_cost <= room; };
  if (!fits()) found = kv_.WithoutClone(found);
  const int32_t tokens = sequence.known() - found.num_tokens;
  const int32_t count = FirstChunk(sequence, tokens);
  if (count == 0 || found.num_tokens > found_budget_) return false;
  if (!fits()) return false;
  sequences_.Admit(sequence, found, all - found.num_blocks);
  if (sequence.timings.admitted_ns == 0) {
    sequence.timings.admitted_ns = now_ns;
    accounts_.CountBegun(sequence.account, sequence.num_prompt);
    kv_.Account(sequence, found);
  }
  prefills_.push_back({&sequence, count});
  Spend(sequence, count);
  found_budget_ -= found.num_tokens;
  mask_budget_ -= sequence.brings_mask();
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
  const int32_t count =
      MayBeOvertaken(sequence) ? Capped(sequence, tokens) : std::min(tokens, MostOf(sequence));
  const bool unfinished = count < tokens;
  return unfinished && unfinished_prefills_ >= config_.max_partial_prefills ? 0 : count;
}

// Gives unused budget to the chosen prefills: no other sequence needs it.
void StepPlanner::SpendLeftover() {
  accounts_.ClearLeft();
  for (Choice& choice : prefills_) {
    const int32_t more =
        std::min(MostOf(*choice.sequence), choice.sequence->remaining() - choice.count);
    choice.count += more;
    Spend(*choice.sequence, more);
    accounts_.AddLeft(choice.sequence->account, choice.sequence->remaining() - choice.count);
    choice.sequence->steps_unserved = choice.count > 0 ? 0 : choice.sequence->steps_unserved + 1;
  }
}

}  // namespace quire
