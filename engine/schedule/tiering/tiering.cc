// Chains become tasks, tasks become jobs, acks end them.
#include "engine/schedule/tiering/tiering.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/sessions/session_pressure.h"
#include "engine/schedule/sessions/session_store.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Prefetches at a time: more would only share the same bus.
constexpr size_t kMaxPrefetches = 2;
// With more stores under way, preempted sequences and running turns begin no others.
constexpr size_t kMaxStores = 64;
// One call of NextJob starts at most this many tasks of each kind, so that it stays short.
constexpr int32_t kMaxStarts = 64;
// The copies of a preempted sequence leave this share of the pool to the sequence that needed it.
constexpr int32_t kPercentLeftAvailable = 1;
// The longest that a store may hold blocks which a waiting request needs.
constexpr int64_t kLongestStoreNs = 2'000'000'000;
// After a store that found no page, wait this long before trying under pressure again.
constexpr int64_t kNoRoomPause = StorePauses::kPauseNs;

int32_t CopiesPerJob(int64_t block_bytes) {
  const int64_t by_bytes = CopyJob::kMaxBytes / std::max<int64_t>(block_bytes, 1);
  return static_cast<int32_t>(std::clamp<int64_t>(by_bytes, 1, CopyJob::kMaxCopies));
}

}  // namespace

Tiering::Tiering(const TieringConfig& config, BlockPool& pool, PrefixTree& tree,
                 SessionStore& sessions)
    : config_(config),
      max_copies_(CopiesPerJob(config.block_bytes)),
      timeout_ns_(static_cast<int64_t>(config.job_timeout_seconds * 1e9)),
      pool_(pool),
      tree_(tree),
      sessions_(sessions.pressure()),
      policy_(config),
      tasks_(pool, tree, sessions_),
      jobs_(timeout_ns_) {
  sending_.reserve(max_copies_);
  copies_.reserve(max_copies_);
  CountUse();
}

// --- Restores.

// Finds the nodes of the chain to be loaded, up to the first without KV: nothing behind it can be
// read.
void Tiering::FindMissing(NodeId node) {
  missing_.clear();
  loaded_elsewhere_.clear();
  tree_.Chain(node, chain_);
  for (const NodeId each : chain_) {
    const NodeKv& kv = tree_.Kv(each);
    if (kv.on_device()) continue;
    if (kv.loading) {
      loaded_elsewhere_.push_back(each);
    } else if (kv.on_host()) {
      missing_.push_back(each);
    } else {
      return;
    }
  }
}

std::optional<int32_t> Tiering::BlocksToRestore(NodeId node, int32_t tokens, int64_t now_ns) {
  FindMissing(node);
  if (missing_.empty() && loaded_elsewhere_.empty()) return std::nullopt;
  const int32_t blocks = static_cast<int32_t>(missing_.size());
  const bool accepted = !jobs_.HasLate(CopyDirection::kLoad) &&
                        policy_.AcceptRestore(tasks_.num_loading() + blocks, tokens, now_ns);
  if (accepted) return blocks;
  ++stats_.restores_declined;
  return std::nullopt;
}

Tiering::Restore Tiering::BeginRestore(NodeId node, int32_t tokens, int64_t now_ns) {
  FindMissing(node);
  const uint64_t ticket = tasks_.BeginLoad(TaskKind::kRestore, node, missing_, /*reserved=*/true);
  CopyTask& task = *tasks_.Find(TaskKind::kRestore, ticket);
  task.loaded_elsewhere = loaded_elsewhere_;
  task.awaited = true;
  task.deadline_ns = now_ns + std::min(timeout_ns_, policy_.PatienceNs(tokens));
  return {ticket, static_cast<int32_t>(task.todo.size())};
}

bool Tiering::EndRestoreIfDone(uint64_t ticket, int64_t now_ns) {
  CopyTask* task = tasks_.Find(TaskKind::kRestore, ticket);
  if (task == nullptr || !task->awaited) return true;
  std::vector<NodeId>& elsewhere = task->loaded_elsewhere;
  while (!elsewhere.empty() && !tree_.Kv(elsewhere.back()).loading) elsewhere.pop_back();
  const bool done = task->all_sent() && task->in_flight == 0 && elsewhere.empty();
  const bool late = now_ns >= task->deadline_ns;
  if (!done && !task->failed && !late) return false;
  stats_.restores_late += !done && !task->failed;
  tasks_.AbandonRestore(ticket);
  return true;
}

void Tiering::EndLateRestores(int64_t now_ns) {
  const CopyTasks::Tasks& restores = tasks_.all(TaskKind::kRestore);
  for (auto it = restores.begin(); it != restores.end();) {
    const auto& [ticket, task] = *it++;
    if (task.awaited && task.deadline_ns <= now_ns) EndRestoreIfDone(ticket, now_ns);
  }
}

// --- Beginning tasks.

// Loads into blocks that are free or can be evicted without a loss.
void Tiering::BeginPrefetches() {
  const CopyTasks::Tasks& prefetches = tasks_.all(TaskKind::kPrefetch);
  for (int32_t i = 0; i < kMaxStarts && prefetches.size() < kMaxPrefetches; ++i) {
    const NodeId node = sessions_.NextPrefetch();
    if (node == kNoNode) return;
    FindMissing(node);
    const int32_t lossless = pool_.num_free() + tree_.evictions().num_lossless() - pool_.reserved();
    const int32_t room = std::min(pool_.available(), lossless) - tree_.HoldCost(node);
    if (room <= 0 || missing_.empty()) continue;
    if (missing_.size() > static_cast<size_t>(room)) missing_.resize(room);
    tasks_.BeginLoad(TaskKind::kPrefetch, node, missing_, /*reserved=*/false);
    sessions_.OnTierChange(node);
  }
}

// Returns the ticket; 0: nothing of the chain to `node` can be stored now.
uint64_t Tiering::BeginStore(NodeId node) {
  chain_.clear();
  missing_.clear();
  for (NodeId each = node; tree_.Depth(each) > 0 && tree_.Kv(each).page == kNoPage;) {
    chain_.push_back(each);
    each = tree_.Parent(each);
  }
  for (; !chain_.empty() && tree_.Kv(chain_.back()).on_device(); chain_.pop_back()) {
    missing_.push_back(chain_.back());
  }
  // A hold must not break a reservation.
  if (missing_.empty() || tree_.HoldCost(node) > pool_.available()) return 0;
  if (!MakesRoomInShare(node)) return 0;
  const int32_t tokens = static_cast<int32_t>(missing_.size()) * tree_.block_size();
  return tasks_.BeginStore(node, missing_,
                           now_ns_ + std::min(kLongestStoreNs, policy_.PatienceNs(tokens)));
}

// Host memory that is still to come is worth a wait; the pages of another session are not dropped
// for it.
bool Tiering::AwaitsPages() const {
  return !tree_.host().all_ready() && tree_.host().num_free_pages() == 0;
}

// Whether the bound of the node's tenant leaves room for a page, if need be in place of pages of
// its less wanted sessions. No store begins without it: its hold would move the chain behind those
// of other tenants in the order of eviction, and be in vain.
bool Tiering::MakesRoomInShare(NodeId node) {
  if (tree_.host().RoomInShare(node) > 0) return true;
  stats_.pages_dropped += sessions_.MakeRoom(1, node);
  return tree_.host().RoomInShare(node) > 0;
}

bool Tiering::TakesStores() const {
  return tasks_.all(TaskKind::kStore).size() < kMaxStores && !AwaitsPages() &&
         !jobs_.HasLate(CopyDirection::kStore) &&
         policy_.IsWorthCopying(CopyDirection::kStore, 1, tree_.block_size(), now_ns_);
}

void Tiering::OnGrowth(NodeId node) {
  if (policy_.pressed() && TakesStores()) BeginStore(node);
}

void Tiering::OnPreempt(NodeId node) {
  if (tree_.host().num_pages() == 0 || !TakesStores()) return;
  const int32_t left_available = 1 + pool_.total() * kPercentLeftAvailable / 100;
  int32_t cost = tree_.HoldCost(node);
  for (; tree_.Depth(node) > 0 && cost > pool_.available() - left_available;
       node = tree_.Parent(node)) {
    cost -= tree_.Held(node) ? 0 : 1;
  }
  if (tree_.Depth(node) > 0) BeginStore(node);
}

// Blocks held by stores count as lossless: they will be, when the copies have ended.
bool Tiering::UpdatePressure() {
  const int32_t lossless =
      pool_.num_free() + tree_.evictions().num_lossless() + tasks_.store_costs();
  policy_.UpdatePressure(lossless, pool_.total());
  return policy_.pressed();
}

// --- Sending jobs.

int32_t Tiering::Room() const { return max_copies_ - static_cast<int32_t>(copies_.size()); }

// Puts the next of the task's copies into the job being made.
void Tiering::SendNext(TaskKind kind, uint64_t ticket) {
  const TaskCopy copy = tasks_.SendNext(kind, ticket);
  sending_.push_back(copy);
  copies_.push_back({tree_.Kv(copy.node).block, tree_.Kv(copy.node).page});
}

void Tiering::SendLoads(TaskKind kind) {
  for (const auto& [ticket, task] : tasks_.all(kind)) {
    while (!task.all_sent() && Room() > 0) SendNext(kind, ticket);
    if (Room() == 0) return;
  }
}

// False: the store has failed, because there is no page for it.
bool Tiering::SendStore(uint64_t ticket) {
  const CopyTask& task = *tasks_.Find(TaskKind::kStore, ticket);
  while (!task.all_sent() && Room() > 0) {
    const NodeId node = task.todo[task.sent];
    if (tree_.Kv(node).page != kNoPage) {  // another task that shares it has stored it meanwhile
      tasks_.SkipNext(ticket);
      continue;
    }
    const int32_t wanted = std::min(Room(), static_cast<int32_t>(task.todo.size() - task.sent));
    if (AwaitsPages()) return true;
    if (tree_.host().num_free_pages(node) == 0) {
      stats_.pages_dropped += sessions_.MakeRoom(wanted, task.node);
    }
    if (tree_.host().BeginStore(node) == kNoPage) {
      tasks_.Fail(TaskKind::kStore, ticket);
      tasks_.EndIfDone(TaskKind::kStore, ticket);
      return false;
    }
    SendNext(TaskKind::kStore, ticket);
  }
  tasks_.EndIfDone(TaskKind::kStore, ticket);
  return true;
}

// The node to be stored under pressure: the longest unused, of a tenant that does not pause. Looks
// at each tenant's own order only if the first of all nodes is of one that does.
NodeId Tiering::NextUnsaved(int64_t now_ns) const {
  const EvictionOrder& order = tree_.evictions();
  const NodeId first = order.OldestUnsaved();
  if (first == kNoNode || !pauses_.Contains(tree_.AccountOf(first), now_ns)) return first;
  NodeId oldest = kNoNode;
  for (AccountId account = 0; account < order.num_accounts(); ++account) {
    const NodeId node = order.OldestUnsaved(account);
    if (node == kNoNode || pauses_.Contains(account, now_ns)) continue;
    if (oldest == kNoNode || order.IsOlder(node, oldest)) oldest = node;
  }
  return oldest;
}

// A store under pressure did not begin, or found no page.
void Tiering::PauseStores(NodeId node, int64_t now_ns) {
  if (tree_.host().RoomInShare(node) <= 0) {
    pauses_.Add(tree_.AccountOf(node), now_ns);
  } else {
    no_room_until_ = now_ns + kNoRoomPause;
  }
}

void Tiering::SendStores(int64_t now_ns) {
  if (tree_.host().num_pages() == 0) return;
  if (AwaitsPages()) {
    no_room_until_ = now_ns + kNoRoomPause;
    return;
  }
  const CopyTasks::Tasks& stores = tasks_.all(TaskKind::kStore);
  for (auto it = stores.begin(); it != stores.end() && Room() > 0;) SendStore((it++)->first);
  for (int32_t i = 0; i < kMaxStarts && Room() > 0 && !AwaitsPages(); ++i) {
    NodeId node = sessions_.NextIdle(now_ns);
    const bool idle = node != kNoNode;
    if (!idle && now_ns >= no_room_until_ && UpdatePressure() && TakesStores()) {
      node = NextUnsaved(now_ns);
    }
    if (node == kNoNode) return;
    const uint64_t ticket = BeginStore(node);
    if ((ticket == 0 || !SendStore(ticket)) && !idle) PauseStores(node, now_ns);
    sessions_.OnTierChange(node);
  }
}

bool Tiering::NextJob(int64_t now_ns, CopyJob& job) {
  now_ns_ = now_ns;
  MarkLate(now_ns);
  sending_.clear();
  copies_.clear();
  job.direction = CopyDirection::kLoad;
  if (jobs_.CanSend(CopyDirection::kLoad)) {
    BeginPrefetches();
    SendLoads(TaskKind::kRestore);
    SendLoads(TaskKind::kPrefetch);
  }
  if (copies_.empty() && jobs_.CanSend(CopyDirection::kStore)) {
    job.direction = CopyDirection::kStore;
    SendStores(now_ns);
  }
  if (!copies_.empty()) {
    job.job = jobs_.Add(job.direction, sending_, now_ns);
    job.copies = copies_;
  }
  CountUse();
  return !copies_.empty();
}

// Fails the tasks of a job that passes its deadline: no sequence waits for it any longer. Stores
// that would wait behind a late one give up the blocks they hold for unsent copies.
void Tiering::MarkLate(int64_t now_ns) {
  bool late_store = false;
  while (const JobInFlight* job = jobs_.MarkLate(now_ns)) {
    ++stats_.late_jobs;
    for (const TaskCopy& copy : job->copies) tasks_.Fail(copy.kind, copy.ticket);
    late_store |= job->direction == CopyDirection::kStore;
  }
  if (late_store) tasks_.GiveUpUnsentStores();
}

// --- Ending jobs.

// The first `good` copies have succeeded; with `corrupt` the page of the next one is bad.
void Tiering::EndCopies(const JobInFlight& job, int32_t good, bool corrupt) {
  for (int32_t i = 0; i < static_cast<int32_t>(job.copies.size()); ++i) {
    tasks_.EndCopy(job.copies[i], i < good, corrupt && i == good);
  }
}

void Tiering::OnAck(const CopyAck& ack, int64_t now_ns) {
  const std::optional<JobInFlight> job = jobs_.Take(ack.job);
  if (!job.has_value()) return;
  const int32_t count = static_cast<int32_t>(job->copies.size());
  const bool corrupt = ack.status == CopyStatus::kCorrupt && job->direction == CopyDirection::kLoad;
  const int32_t good = ack.status == CopyStatus::kOk ? count
                       : corrupt                     ? std::clamp(ack.num_good, 0, count - 1)
                                                     : 0;
  EndCopies(*job, good, corrupt);
  uint64_t last = 0;
  for (const TaskCopy& copy : job->copies) {
    if (std::exchange(last, copy.ticket) != copy.ticket) tasks_.EndIfDone(copy.kind, copy.ticket);
  }
  CountJob(*job, ack, good, now_ns);
}

void Tiering::ForgetJobs() {
  while (const std::optional<JobInFlight> job = jobs_.TakeAny()) {
    EndCopies(*job, 0, false);
    ++stats_.failed_jobs;
  }
  jobs_.Restart();
  tasks_.EndAll();
  CountUse();
}

// --- Counting.

void Tiering::CountJob(const JobInFlight& job, const CopyAck& ack, int32_t good, int64_t now_ns) {
  const bool load = job.direction == CopyDirection::kLoad;
  const int64_t bytes = good * config_.block_bytes;
  (load ? stats_.loaded_blocks : stats_.stored_blocks) += good;
  (load ? stats_.loaded_bytes : stats_.stored_bytes) += bytes;
  stats_.failed_jobs += ack.status != CopyStatus::kOk;
  stats_.corrupt_pages += load && ack.status == CopyStatus::kCorrupt;
  if (ack.status == CopyStatus::kOk) policy_.OnCopied(job.direction, bytes, ack.ns, now_ns);
  stats_.load_bytes_per_second = policy_.BytesPerSecond(CopyDirection::kLoad, now_ns);
  stats_.store_bytes_per_second = policy_.BytesPerSecond(CopyDirection::kStore, now_ns);
  CountUse();
}

void Tiering::CountUse() { stats_.jobs_in_flight = jobs_.size(); }

TieringStats Tiering::stats() const {
  TieringStats stats = stats_;
  stats.stores_given_up = tasks_.num_given_up();
  return stats;
}

int64_t Tiering::NextTimer() const {
  int64_t next = jobs_.NextDeadline();
  const bool waits = policy_.pressed() || AwaitsPages();
  if (waits && no_room_until_ > now_ns_) next = std::min(next, no_room_until_);
  if (waits && pauses_.end_ns() > now_ns_) next = std::min(next, pauses_.end_ns());
  for (const auto& [ticket, task] : tasks_.all(TaskKind::kRestore)) {
    if (task.awaited) next = std::min(next, task.deadline_ns);
  }
  for (const auto& [ticket, task] : tasks_.all(TaskKind::kStore)) {
    if (!task.all_sent() && task.deadline_ns > now_ns_) next = std::min(next, task.deadline_ns);
  }
  return next;
}

void Tiering::CheckInvariants() const {
  CHECK_GE(Room(), 0);
  std::map<uint64_t, int32_t> in_flight;  // copies by ticket
  jobs_.CheckInvariants(tree_, in_flight);
  tasks_.CheckInvariants(in_flight);
}

}  // namespace quire
