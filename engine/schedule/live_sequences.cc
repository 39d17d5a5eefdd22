// The transitions of a sequence's life.
#include "engine/schedule/live_sequences.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

// Waiting sequences, sequences requeued by preemption, and finishing sequences that still hold a
// row. More are accepted, at the cost of an allocation.
size_t RecordCapacity(const SchedulerConfig& config) {
  return size_t(config.max_num_queued_reqs) + 2 * size_t(config.max_num_seqs);
}

bool Precedes(const Sequence* a, const Sequence* b) { return RunsBefore(*a, *b); }

void InsertInOrder(std::vector<Sequence*>& sequences, Sequence& sequence) {
  const auto place = std::upper_bound(sequences.begin(), sequences.end(), &sequence, Precedes);
  sequences.insert(place, &sequence);
}

void EraseInOrder(std::vector<Sequence*>& sequences, Sequence& sequence) {
  const auto place = std::lower_bound(sequences.begin(), sequences.end(), &sequence, Precedes);
  CHECK(place != sequences.end() && *place == &sequence);
  sequences.erase(place);
}

}  // namespace

LiveSequences::LiveSequences(const SchedulerConfig& config)
    : block_size_(config.block_size),
      max_num_seqs_(config.max_num_seqs),
      max_output_(config.max_model_len - 1),
      kv_(config),
      block_tables_(config.max_num_seqs),
      records_(RecordCapacity(config)),
      ids_(RecordCapacity(config)),
      queue_(RecordCapacity(config)),
      line_(queue_, accounts_) {
  const int32_t blocks_per_sequence = (config.max_model_len + block_size_ - 1) / block_size_;
  for (int32_t row = max_num_seqs_ - 1; row >= 0; --row) free_rows_.push_back(row);
  for (auto& table : block_tables_) table.reserve(blocks_per_sequence);
  // One for every row, and for as many preempted sequences, which keep theirs. Memory that is never
  // written costs only addresses.
  spare_outputs_.resize(2 * size_t(max_num_seqs_));
  for (auto& output : spare_outputs_) output.reserve(max_output_);
  kv_.SetAccounts(&accounts_);
  free_records_.reserve(records_.size());
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    free_records_.push_back(&*record);
  }
  deadlines_.Reserve(records_.size());
  running_.reserve(max_num_seqs_);
  restoring_.reserve(max_num_seqs_);
}

Sequence& LiveSequences::Add(std::unique_ptr<Request> request, int32_t hard_end, uint64_t turn) {
  if (free_records_.empty()) free_records_.push_back(&records_.emplace_back());
  Sequence& sequence = *free_records_.back();
  free_records_.pop_back();
  sequence.state = SequenceState::kQueued;
  sequence.hard_end = hard_end;
  sequence.num_prompt = static_cast<int32_t>(request->prompt.size());
  sequence.turn = turn;
  sequence.has_head_start = turn != 0 && kv_.sessions().KeptBy(turn) != kNoNode;
  sequence.order = next_order_++;
  sequence.account = accounts_.Open(request->tenant);
  sequence.timings.arrival_ns = request->arrival_ns;
  sequence.timings.predicted_ttft_ns = request->predicted_ttft_ns;
  sequence.request = std::move(request);
  ids_.Insert(sequence.request->id, &sequence);
  if (sequence.request->deadline_ns != kNoDeadline) {
    deadlines_.Insert({sequence.request->deadline_ns, sequence.order, &sequence});
  }
  line_.Enter(sequence);
  return sequence;
}

void LiveSequences::Admit(Sequence& sequence, const SequenceKv::Found& found, int32_t blocks) {
  if (sequence.state == SequenceState::kRestoring) {
    EraseInOrder(restoring_, sequence);
  } else {
    CHECK(sequence.state == SequenceState::kQueued);
    accounts_.AddRunning(sequence.account, 1);
    line_.Leave(sequence);
  }
  sequence.state = SequenceState::kRunning;
  sequence.row = free_rows_.back();
  sequence.new_row = true;
  sequence.bypassed = 0;
  sequence.steps_unserved = 0;
  sequence.blocks.swap(block_tables_[sequence.row]);
  if (sequence.output.capacity() == 0) TakeOutputBuffer(sequence);
  free_rows_.pop_back();
  kv_.Share(sequence, found, blocks);
  InsertInOrder(running_, sequence);
  running_tokens_ += sequence.known();
}

SequenceKv::Restore LiveSequences::BeginRestore(Sequence& sequence, const SequenceKv::Found& found,
                                                int32_t blocks, int32_t room, int64_t now_ns) {
  CHECK(sequence.state == SequenceState::kQueued);
  const auto restore = kv_.BeginRestore(sequence, found, blocks, room, now_ns);
  if (restore != SequenceKv::Restore::kBegun) return restore;
  accounts_.AddRunning(sequence.account, 1);
  line_.Leave(sequence);
  sequence.state = SequenceState::kRestoring;
  sequence.bypassed = 0;
  InsertInOrder(restoring_, sequence);
  return restore;
}

void LiveSequences::Withdraw(Sequence& sequence) {
  CHECK(sequence.state == SequenceState::kRestoring);
  kv_.AbandonRestore(sequence);
  EraseInOrder(restoring_, sequence);
  accounts_.AddRunning(sequence.account, -1);
  sequence.state = SequenceState::kQueued;
  line_.Enter(sequence);
}

void LiveSequences::Preempt(Sequence& sequence) {
  CHECK(sequence.state == SequenceState::kRunning);
  Suspend(sequence);
  ++sequence.preemptions;
  sequence.state = SequenceState::kPreempted;
  line_.Enter(sequence);
  ReleaseIfDrained(sequence);
}

void LiveSequences::Requeue(Sequence& sequence) {
  CHECK_EQ(sequence.steps_in_flight, 0);
  if (sequence.state == SequenceState::kRestoring) Withdraw(sequence);
  if (sequence.state == SequenceState::kRunning) {
    Suspend(sequence);
    sequence.state = SequenceState::kPreempted;
    line_.Enter(sequence);
  }
  ReleaseIfDrained(sequence);
}

void LiveSequences::Pause(Sequence& sequence) {
  CHECK(sequence.live() && !sequence.paused);
  if (sequence.state == SequenceState::kRestoring) Withdraw(sequence);
  if (sequence.state == SequenceState::kRunning) {
    Suspend(sequence);
    sequence.state = SequenceState::kPreempted;
  } else {
    line_.Leave(sequence);
  }
  line_.LosePrompt(sequence);
  sequence.paused = true;
  ++num_paused_;
  ReleaseIfDrained(sequence);
}

void LiveSequences::Resume(Sequence& sequence) {
  CHECK(sequence.live() && sequence.paused);
  sequence.paused = false;
  --num_paused_;
  line_.Enter(sequence);
}

void LiveSequences::Finish(Sequence& sequence) {
  CHECK(sequence.live());
  if (sequence.state == SequenceState::kRestoring) Withdraw(sequence);
  if (sequence.state == SequenceState::kRunning) {
    Suspend(sequence);
  } else if (sequence.paused) {
    --num_paused_;
  } else {
    line_.Leave(sequence);
  }
  line_.LosePrompt(sequence);
  ids_.Erase(sequence.request->id);
  if (sequence.request->deadline_ns != kNoDeadline) {
    deadlines_.Erase({sequence.request->deadline_ns, sequence.order, &sequence});
  }
  sequence.state = SequenceState::kFinishing;
}

// Takes a running sequence out of the running order and drops its reservation; its blocks drain.
void LiveSequences::Suspend(Sequence& sequence) {
  EraseInOrder(running_, sequence);
  accounts_.AddRunning(sequence.account, -1);
  sequence.has_head_start = true;
  running_tokens_ -= sequence.known();
  kv_.pool().Unreserve(sequence.reserved);
  sequence.reserved = 0;
  draining_blocks_ += static_cast<int32_t>(sequence.blocks.size());
}

void LiveSequences::ReleaseIfDrained(Sequence& sequence) {
  const bool leaving =
      sequence.state == SequenceState::kPreempted || sequence.state == SequenceState::kFinishing;
  if (!leaving || sequence.steps_in_flight > 0) return;
  CHECK_EQ(sequence.pending, 0);
  if (sequence.row != Sequence::kNoRow) ReleaseRowAndBlocks(sequence);
  sequence.planned = sequence.computed = 0;
  sequence.table_tokens = sequence.table_blocks = 0;
  if (sequence.state == SequenceState::kPreempted) {
    sequence.state = SequenceState::kQueued;
    if (sequence.output.empty()) GiveBackOutputBuffer(sequence);
    return;
  }
  GiveBackOutputBuffer(sequence);
  accounts_.Close(sequence.account);
  sequence = Sequence();
  free_records_.push_back(&sequence);
}

void LiveSequences::ReleaseRowAndBlocks(Sequence& sequence) {
  draining_blocks_ -= static_cast<int32_t>(sequence.blocks.size());
  kv_.Release(sequence);
  sequence.blocks.swap(block_tables_[sequence.row]);
  free_rows_.push_back(sequence.row);
  sequence.row = Sequence::kNoRow;
  sequence.guesser.reset();
}

void LiveSequences::TakeOutputBuffer(Sequence& sequence) {
  if (spare_outputs_.empty()) {
    sequence.output.reserve(max_output_);
    return;
  }
  sequence.output.swap(spare_outputs_.back());
  spare_outputs_.pop_back();
}

// A sequence that was never admitted has none to give back.
void LiveSequences::GiveBackOutputBuffer(Sequence& sequence) {
  if (sequence.output.capacity() == 0) return;
  sequence.output.clear();
  spare_outputs_.emplace_back().swap(sequence.output);
}

bool LiveSequences::TakeBlock(Sequence& sequence) {
  BlockPool& pool = kv_.pool();
  if (sequence.reserved > 0) {
    --sequence.reserved;
    sequence.blocks.push_back(pool.TakeReserved());
    return true;
  }
  if (pool.available() == 0) return false;
  sequence.blocks.push_back(pool.Take());
  return true;
}

void LiveSequences::AppendToken(Sequence& sequence, int32_t token) {
  CHECK_LT(sequence.known(), sequence.hard_end);
  sequence.output.push_back(token);
  sequence.proved = sequence.computed;
  kv_.Commit(sequence);
  line_.EndPrompt(sequence);
  accounts_.CountGenerated(sequence.account);
  if (sequence.state == SequenceState::kRunning) {
    ++running_tokens_;
  } else if (!sequence.paused) {
    queue_.AddToken();
    accounts_.AddWaiting(sequence.account, 0, 1);
  }
}

Sequence* LiveSequences::EarliestDeadline() const {
  return deadlines_.empty() ? nullptr : deadlines_.begin()->sequence;
}

// Every record's holdings, and the sums over them.
void LiveSequences::CheckInvariants() const {
  std::vector<int32_t> owners(pool().total() + 1, 0);
  std::vector<bool> row_taken(max_num_seqs_, false);
  int32_t reserved = 0;
  int32_t draining = 0;
  for (const Sequence& sequence : records_) {
    CheckHoldings(sequence);
    kv_.CheckHoldings(sequence, owners);
    reserved += sequence.reserved;
    if (sequence.state != SequenceState::kRunning) {
      draining += static_cast<int32_t>(sequence.blocks.size());
    }
    if (sequence.row == Sequence::kNoRow) continue;
    CHECK(sequence.row >= 0 && sequence.row < max_num_seqs_);
    CHECK(!row_taken[sequence.row]);
    row_taken[sequence.row] = true;
  }
  kv_.CheckInvariants(owners);
  CHECK_EQ(reserved, pool().reserved());
  CHECK_EQ(draining, draining_blocks_);
  for (const auto& output : spare_outputs_) {
    CHECK(output.empty() && output.capacity() >= static_cast<size_t>(max_output_));
  }
  for (const int32_t row : free_rows_) {
    CHECK(!row_taken[row] && block_tables_[row].empty());
    row_taken[row] = true;
  }
  CHECK(std::find(row_taken.begin(), row_taken.end(), false) == row_taken.end());
  CheckContainers();
}

void LiveSequences::CheckHoldings(const Sequence& s) const {
  const int32_t capacity = static_cast<int32_t>(s.blocks.size()) * block_size_;
  CHECK_EQ(s.request != nullptr, s.state != SequenceState::kFree);
  CHECK(0 <= s.proved && s.proved <= s.computed);
  CHECK(s.computed <= s.planned && s.planned <= capacity);
  CHECK(!s.live() || (s.planned <= s.expected() && s.expected() <= s.hard_end));
  CHECK(!s.live() || s.table_tokens <= s.expected());
  CHECK_LE(s.table_blocks, static_cast<int32_t>(s.blocks.size()));
  const bool has_output_buffer = s.row != Sequence::kNoRow || !s.output.empty();
  CHECK(has_output_buffer ? s.output.capacity() >= static_cast<size_t>(max_output_)
                          : s.output.capacity() == 0);
  switch (s.state) {
    case SequenceState::kFree:
    case SequenceState::kQueued:
      CHECK(s.row == Sequence::kNoRow && s.blocks.empty() && s.reserved == 0);
      CHECK(s.planned == 0 && s.pending == 0 && s.steps_in_flight == 0);
      CHECK(s.node == kNoNode && s.restore == 0);
      break;
    case SequenceState::kRestoring:
      CHECK(s.row == Sequence::kNoRow && s.blocks.empty() && s.reserved >= 0);
      CHECK(s.planned == 0 && s.steps_in_flight == 0 && s.node != kNoNode && !s.paused);
      break;
    case SequenceState::kRunning:
      CHECK(s.row != Sequence::kNoRow && s.reserved >= 0);
      // A prefill never has to preempt: the blocks of every known token are held or promised.
      CHECK_GE(capacity + s.reserved * block_size_, s.known() - (s.remaining() <= 1));
      break;
    case SequenceState::kPreempted:
    case SequenceState::kFinishing:
      CHECK(s.row != Sequence::kNoRow && s.reserved == 0 && s.steps_in_flight > 0);
      break;
  }
}

// Every live sequence is in exactly one of queue, a leader's followers and running order, or
// paused; ids and deadlines contain the live sequences.
void LiveSequences::CheckContainers() const {
  size_t waiting_count = 0;
  size_t num_running = 0;
  size_t num_restoring = 0;
  size_t num_paused = 0;
  size_t num_deadlines = 0;
  size_t num_free = 0;
  for (const Sequence& s : records_) {
    const bool waiting = s.state == SequenceState::kQueued || s.state == SequenceState::kPreempted;
    waiting_count += waiting && !s.paused;
    CHECK(!s.paused || s.leader == nullptr);
    num_paused += waiting && s.paused;
    num_running += s.state == SequenceState::kRunning;
    num_restoring += s.state == SequenceState::kRestoring;
    num_free += s.state == SequenceState::kFree;
    if (!s.live()) continue;
    CHECK(ids_.Find(s.request->id) == &s);
    if (s.request->deadline_ns == kNoDeadline) continue;
    ++num_deadlines;
    CHECK(deadlines_.Contains({s.request->deadline_ns, s.order, nullptr}));
  }
  CHECK_EQ(num_free, free_records_.size());
  CHECK_EQ(num_running, running_.size());
  CHECK_EQ(num_restoring, restoring_.size());
  CHECK_EQ(waiting_count, num_waiting());
  CHECK_EQ(num_paused, num_paused_);
  CHECK_EQ(waiting_count + num_running + num_restoring + num_paused, ids_.size());
  CHECK_EQ(num_deadlines, deadlines_.size());
  CHECK(std::is_sorted(running_.begin(), running_.end(), Precedes));
  CHECK(std::is_sorted(restoring_.begin(), restoring_.end(), Precedes));
  int64_t tokens = 0;
  for (const Sequence* s : running_) {
    CHECK(s->state == SequenceState::kRunning);
    tokens += s->known();
  }
  CHECK_EQ(tokens, running_tokens_);
  line_.CheckInvariants(records_);
  CheckQueue();
  CheckAccounts();
}

void LiveSequences::CheckQueue() const {
  int64_t tokens = 0;
  for (const RequestQueue::Entry& entry : queue_) {
    const Sequence& s = *entry.sequence;
    CHECK(s.state == SequenceState::kQueued || s.state == SequenceState::kPreempted);
    CHECK(!s.paused && s.leader == nullptr);
    const int64_t start_ns = s.has_head_start ? RequestQueue::kHeadStartNs : 0;
    CHECK(entry.place_ns == s.request->arrival_ns - start_ns && entry.order == s.order);
    CHECK_EQ(entry.account, s.account);
    tokens += s.known();
  }
  CHECK_EQ(tokens, queue_.num_tokens());
}

// Each account's counts are those of its sequences and of its root in the tree.
void LiveSequences::CheckAccounts() const {
  std::vector<TenantAccount> sums(accounts_.size());
  const NodeTree& nodes = kv_.tree().nodes().tree();
  for (NodeId id = 0; id < nodes.num_nodes(); ++id) {
    if (nodes.IsRoot(id)) ++sums[nodes.AccountOf(id)].records;
  }
  for (const Sequence& s : records_) {
    if (s.state == SequenceState::kFree) continue;
    TenantAccount& sum = sums[s.account];
    CHECK_EQ(accounts_[s.account].tenant, s.request->tenant);
    ++sum.records;
    if (!s.live() || s.paused) continue;
    const bool running = s.state == SequenceState::kRunning || s.state == SequenceState::kRestoring;
    const bool queued = !running && s.leader == nullptr;
    sum.running += running;
    sum.following += s.leader != nullptr;
    sum.waiting += queued;
    sum.waiting_tokens += queued ? s.known() : 0;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const TenantAccount& account = accounts_[static_cast<AccountId>(i)];
    CHECK_EQ(sums[i].records, account.records);
    CHECK_EQ(sums[i].running, account.running);
    CHECK_EQ(sums[i].following, account.following);
    CHECK_EQ(sums[i].waiting, account.waiting);
    CHECK_EQ(sums[i].waiting_tokens, account.waiting_tokens);
  }
  accounts_.CheckInvariants();
}

}  // namespace quire
