// Chains become tasks, tasks become jobs, acks end them.
#include "engine/schedule/tiering/tiering.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

// A restore that is a little slower than computing leaves the device to others meanwhile.
constexpr double kRestorePatience = 1.2;
// Of restores that are expected not to pay one in so many is tried all the same: only so can it
// turn out that they would.
constexpr int32_t kProbe = 16;
constexpr size_t kMaxPrefetches = 2;
constexpr size_t kMaxStores = 64;  // beyond them running turns wait
// What one call starts or gives up at most.
constexpr int32_t kMaxStarts = 64;
// Of the pool: what a victim's copies leave to those that it was preempted for.
constexpr int32_t kPercentForOthers = 1;
constexpr int64_t kNoRoomPause = 100'000'000;

}  // namespace

Tiering::Tiering(const TieringConfig& config, BlockPool& pool, PrefixTree& tree,
                 SessionStore& sessions)
    : config_(config),
      max_copies_(static_cast<int32_t>(std::clamp<int64_t>(
          CopyJob::kMaxBytes / std::max<int64_t>(config.block_bytes, 1), 1, CopyJob::kMaxCopies))),
      timeout_ns_(static_cast<int64_t>(config.job_timeout_seconds * 1e9)),
      pool_(pool),
      tree_(tree),
      sessions_(sessions.pressure()) {
  pieces_.reserve(max_copies_);
  copies_.reserve(max_copies_);
  CountUse();
}

// --- Restores.

// What of the chain is to be loaded, up to the first gap: what lies behind one cannot be read.
void Tiering::FindMissing(NodeId node) {
  missing_.clear();
  loading_by_others_.clear();
  tree_.Chain(node, chain_);
  for (const NodeId each : chain_) {
    const NodeKv& kv = tree_.Kv(each);
    if (kv.on_device()) continue;
    if (kv.loading) {
      loading_by_others_.push_back(each);
    } else if (kv.on_host()) {
      missing_.push_back(each);
    } else {
      return;
    }
  }
}

bool Tiering::IsLate(CopyDirection direction) const {
  return std::ranges::any_of(flights_, [direction](const auto& entry) {
    return entry.second.late && entry.second.direction == direction;
  });
}

bool Tiering::Pays(int32_t blocks, int32_t tokens, int64_t now_ns) {
  if (IsLate(CopyDirection::kLoad)) return false;
  const double bytes_per_second = load_rate_.PerSecond(now_ns);
  const double tokens_per_second = prefill_.PerSecond(0);
  if (bytes_per_second == 0 || tokens_per_second == 0) return true;
  const double restore =
      static_cast<double>(config_.block_bytes) * (loading_ + blocks) / bytes_per_second;
  if (restore > kRestorePatience * tokens / tokens_per_second) return ++declined_ % kProbe == 0;
  declined_ = 0;
  return true;
}

std::optional<int32_t> Tiering::BlocksToRestore(NodeId node, int32_t tokens, int64_t now_ns) {
  FindMissing(node);
  if (missing_.empty() && loading_by_others_.empty()) return std::nullopt;
  const int32_t blocks = static_cast<int32_t>(missing_.size());
  if (Pays(blocks, tokens, now_ns)) return blocks;
  ++stats_.restores_declined;
  return std::nullopt;
}

Tiering::Restore Tiering::BeginRestore(NodeId node, int64_t now_ns) {
  FindMissing(node);
  const uint64_t ticket = Begin(restores_, node, missing_);
  Task& task = restores_.at(ticket);
  task.others = loading_by_others_;
  task.awaited = true;
  task.deadline_ns = now_ns + timeout_ns_;
  for (const NodeId each : task.todo) tree_.BeginLoad(each, pool_.TakeReserved());
  loading_ += static_cast<int32_t>(task.todo.size());
  return {ticket, static_cast<int32_t>(task.todo.size())};
}

bool Tiering::Finished(uint64_t ticket, int64_t now_ns) {
  const auto found = restores_.find(ticket);
  if (found == restores_.end() || !found->second.awaited) return true;
  Task& task = found->second;
  std::vector<NodeId>& others = task.others;
  while (!others.empty() && !tree_.Kv(others.back()).loading) others.pop_back();
  const bool done = task.all_sent() && task.in_flight == 0 && others.empty();
  if (!done && !task.failed && now_ns < task.deadline_ns) return false;
  Abandon(ticket);
  return true;
}

void Tiering::Abandon(uint64_t ticket) {
  const auto found = restores_.find(ticket);
  if (found == restores_.end()) return;
  found->second.awaited = false;
  Fail(found->second, true);
  EndIfDone(restores_, ticket);
}

// --- Tasks.

uint64_t Tiering::Begin(Tasks& tasks, NodeId node, const std::vector<NodeId>& todo) {
  const int32_t cost = tree_.HoldCost(node);
  tree_.Hold(node);
  tasks[++last_ticket_] = {.node = node, .todo = todo, .cost = cost, .begun_ns = now_ns_};
  return last_ticket_;
}

// Nothing more of it is sent.
void Tiering::Fail(Task& task, bool load) {
  task.failed = true;
  for (; !task.all_sent(); task.todo.pop_back()) {
    if (!load) continue;
    tree_.EndLoad(task.todo.back(), false, false);
    --loading_;
  }
}

void Tiering::EndIfDone(Tasks& tasks, uint64_t ticket) {
  const auto found = tasks.find(ticket);
  const Task& task = found->second;
  if (!task.all_sent() || task.in_flight > 0 || task.awaited) return;
  const NodeId node = task.node;
  if (&tasks == &stores_) store_costs_ -= task.cost;
  tasks.erase(found);
  tree_.Release(node);
  sessions_.OnTierChange(node);
}

// What of a store has not been sent never will be: its hold ends where its copies do.
void Tiering::GiveUpUnsent(uint64_t ticket) {
  Task& task = stores_.at(ticket);
  Fail(task, false);
  if (task.in_flight == 0) return EndIfDone(stores_, ticket);
  const int32_t before = pool_.available();
  const NodeId node = std::exchange(task.node, task.todo.back());
  tree_.Hold(task.node);
  tree_.Release(node);
  const int32_t freed = std::min(pool_.available() - before, task.cost);
  task.cost -= freed;
  store_costs_ -= freed;
  sessions_.OnTierChange(node);
}

bool Tiering::GiveUpStore(int64_t begun_by_ns) {
  const auto holds_unsent = [begun_by_ns](const auto& entry) {
    const Task& task = entry.second;
    return task.begun_ns <= begun_by_ns && task.cost > 0 && !task.all_sent();
  };
  const int32_t before = pool_.available();
  while (pool_.available() == before) {
    const auto newest = std::find_if(stores_.rbegin(), stores_.rend(), holds_unsent);
    if (newest == stores_.rend()) return false;
    GiveUpUnsent(newest->first);
  }
  return true;
}

// As far as there are blocks that nobody would miss.
void Tiering::BeginPrefetches() {
  for (int32_t i = 0; i < kMaxStarts && prefetches_.size() < kMaxPrefetches; ++i) {
    const NodeId node = sessions_.NextPrefetch();
    if (node == kNoNode) return;
    FindMissing(node);
    const int32_t lossless = pool_.num_free() + tree_.num_lossless() - pool_.reserved();
    const int32_t room = std::min(pool_.available(), lossless) - tree_.HoldCost(node);
    if (room <= 0 || missing_.empty()) continue;
    if (missing_.size() > static_cast<size_t>(room)) missing_.resize(room);
    const uint64_t ticket = Begin(prefetches_, node, missing_);
    for (const NodeId each : missing_) tree_.BeginLoad(each, pool_.Take());
    loading_ += static_cast<int32_t>(missing_.size());
    CHECK(!prefetches_.at(ticket).todo.empty());
    sessions_.OnTierChange(node);
  }
}

// 0: nothing of it can be stored now.
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
  const uint64_t ticket = Begin(stores_, node, missing_);
  store_costs_ += stores_.at(ticket).cost;
  return ticket;
}

bool Tiering::UnderPressure() {
  const int32_t lossless = pool_.num_free() + tree_.num_lossless() + store_costs_;
  const double watermark = pressed_ ? config_.high_watermark : config_.low_watermark;
  pressed_ = lossless < watermark * pool_.total();
  return pressed_;
}

// --- Jobs.

bool Tiering::CanSend(CopyDirection direction) const {
  int32_t in_flight = 0;
  for (const auto& [job, flight] : flights_) in_flight += flight.direction == direction;
  return in_flight < CopyJob::kMaxInFlight;
}

int32_t Tiering::Room() const { return max_copies_ - static_cast<int32_t>(copies_.size()); }

// The next of the task's copies goes into the job being made.
void Tiering::Send(Tasks& tasks, uint64_t ticket) {
  Task& task = tasks.at(ticket);
  const NodeId node = task.todo[task.sent++];
  ++task.in_flight;
  pieces_.push_back({node, &tasks, ticket});
  copies_.push_back({tree_.Kv(node).block, tree_.Kv(node).page});
}

void Tiering::SendLoads(Tasks& tasks) {
  for (const auto& [ticket, task] : tasks) {
    while (!task.all_sent() && Room() > 0) Send(tasks, ticket);
    if (Room() == 0) return;
  }
}

// False: it came to nothing, for want of pages.
bool Tiering::SendStore(uint64_t ticket) {
  Task& task = stores_.at(ticket);
  while (!task.all_sent() && Room() > 0) {
    const NodeId node = task.todo[task.sent];
    if (tree_.Kv(node).page != kNoPage) {  // stored meanwhile for another that shares it
      task.todo.erase(task.todo.begin() + task.sent);
      continue;
    }
    const int32_t wanted = std::min(Room(), static_cast<int32_t>(task.todo.size() - task.sent));
    if (tree_.num_free_pages() == 0) stats_.pages_dropped += sessions_.MakeRoom(wanted, task.node);
    if (tree_.BeginStore(node) == kNoPage) {
      Fail(task, false);
      EndIfDone(stores_, ticket);
      return false;
    }
    Send(stores_, ticket);
  }
  EndIfDone(stores_, ticket);
  return true;
}

void Tiering::SendStores(int64_t now_ns) {
  if (tree_.num_pages() == 0) return;
  for (auto it = stores_.begin(); it != stores_.end() && Room() > 0;) SendStore((it++)->first);
  for (int32_t i = 0; i < kMaxStarts && Room() > 0; ++i) {
    NodeId node = sessions_.NextIdle(now_ns);
    const bool idle = node != kNoNode;
    if (!idle && now_ns >= no_room_until_ && UnderPressure()) node = tree_.OldestUnsaved();
    if (node == kNoNode) return;
    const uint64_t ticket = BeginStore(node);
    if ((ticket == 0 || !SendStore(ticket)) && !idle) no_room_until_ = now_ns + kNoRoomPause;
    sessions_.OnTierChange(node);
  }
}

bool Tiering::NextJob(int64_t now_ns, CopyJob& job) {
  now_ns_ = now_ns;
  Lapse(now_ns);
  pieces_.clear();
  copies_.clear();
  job.direction = CopyDirection::kLoad;
  if (CanSend(CopyDirection::kLoad)) {
    BeginPrefetches();
    SendLoads(restores_);
    SendLoads(prefetches_);
  }
  if (copies_.empty() && CanSend(CopyDirection::kStore)) {
    job.direction = CopyDirection::kStore;
    SendStores(now_ns);
  }
  CountUse();
  if (copies_.empty()) return false;
  job.job = ++last_job_;
  job.copies = copies_;
  flights_[job.job] = {job.direction, pieces_, now_ns + timeout_ns_, false};
  ++stats_.jobs_in_flight;
  return true;
}

// Who waits for a late job waits no more; its blocks and pages are the copy's until its ack. Stores
// that would wait behind a late one keep nothing from others.
void Tiering::Lapse(int64_t now_ns) {
  bool late_store = false;
  for (auto& [job, flight] : flights_) {
    if (flight.late || now_ns < flight.deadline_ns) continue;
    flight.late = true;
    ++stats_.late_jobs;
    const bool load = flight.direction == CopyDirection::kLoad;
    for (const Piece& piece : flight.pieces) Fail(piece.tasks->at(piece.ticket), load);
    late_store |= !load;
  }
  if (!late_store) return;
  for (auto it = stores_.begin(); it != stores_.end();) GiveUpUnsent((it++)->first);
}

void Tiering::EndPiece(const Flight& flight, const Piece& piece, bool ok, bool page_bad) {
  Task& task = piece.tasks->at(piece.ticket);
  --task.in_flight;
  const bool load = flight.direction == CopyDirection::kLoad;
  if (load) {
    --loading_;
    tree_.EndLoad(piece.node, ok, page_bad);
  } else {
    tree_.EndStore(piece.node, ok);
  }
  if (!ok) Fail(task, load);
}

void Tiering::OnAck(const CopyAck& ack, int64_t now_ns) {
  const auto found = flights_.find(ack.job);
  if (found == flights_.end()) return;
  const Flight flight = std::move(found->second);
  flights_.erase(found);
  const int32_t count = static_cast<int32_t>(flight.pieces.size());
  const bool corrupt =
      ack.status == CopyStatus::kCorrupt && flight.direction == CopyDirection::kLoad;
  const int32_t good = ack.status == CopyStatus::kOk ? count
                       : corrupt                     ? std::clamp(ack.num_good, 0, count - 1)
                                                     : 0;
  for (int32_t i = 0; i < count; ++i) {
    EndPiece(flight, flight.pieces[i], i < good, corrupt && i == good);
  }
  uint64_t last = 0;
  for (const Piece& piece : flight.pieces) {
    if (std::exchange(last, piece.ticket) != piece.ticket) EndIfDone(*piece.tasks, piece.ticket);
  }
  Measure(flight, ack, good, now_ns);
}

void Tiering::Measure(const Flight& flight, const CopyAck& ack, int32_t good, int64_t now_ns) {
  const bool load = flight.direction == CopyDirection::kLoad;
  const int64_t bytes = good * config_.block_bytes;
  (load ? stats_.loaded_blocks : stats_.stored_blocks) += good;
  (load ? stats_.loaded_bytes : stats_.stored_bytes) += bytes;
  stats_.failed_jobs += ack.status != CopyStatus::kOk;
  stats_.corrupt_pages += load && ack.status == CopyStatus::kCorrupt;
  if (ack.status == CopyStatus::kOk && ack.ns > 0 && bytes > 0) {
    (load ? load_rate_ : store_rate_).Add(static_cast<double>(bytes), ack.ns, now_ns);
  }
  stats_.load_bytes_per_second = load_rate_.PerSecond(now_ns);
  stats_.store_bytes_per_second = store_rate_.PerSecond(now_ns);
  CountUse();
}

void Tiering::CountUse() {
  stats_.jobs_in_flight = static_cast<int32_t>(flights_.size());
  stats_.total_pages = tree_.num_pages();
  stats_.used_pages = tree_.num_pages() - tree_.num_free_pages();
}

bool Tiering::TakesStores() const {
  return stores_.size() < kMaxStores && !IsLate(CopyDirection::kStore);
}

void Tiering::OnGrowth(NodeId node) {
  if (pressed_ && TakesStores()) BeginStore(node);
}

void Tiering::OnPreempt(NodeId node) {
  if (tree_.num_pages() == 0 || !TakesStores()) return;
  const int32_t for_others = 1 + pool_.total() * kPercentForOthers / 100;
  int32_t cost = tree_.HoldCost(node);
  for (; tree_.Depth(node) > 0 && cost > pool_.available() - for_others;
       node = tree_.Parent(node)) {
    cost -= tree_.Held(node) ? 0 : 1;
  }
  if (tree_.Depth(node) > 0) BeginStore(node);
}

void Tiering::OnPrefill(int32_t tokens, int64_t ns) {
  if (tokens > 0 && ns > 0) prefill_.Add(tokens, ns, 0);
}

void Tiering::ForgetJobs() {
  for (const auto& [job, flight] : flights_) {
    for (const Piece& piece : flight.pieces) EndPiece(flight, piece, false, false);
    ++stats_.failed_jobs;
  }
  flights_.clear();
  for (Tasks* tasks : {&restores_, &prefetches_, &stores_}) {
    while (!tasks->empty()) {
      const auto first = tasks->begin();
      first->second.awaited = false;
      Fail(first->second, tasks != &stores_);
      EndIfDone(*tasks, first->first);
    }
  }
  last_job_ = 0;
  CountUse();
}

int64_t Tiering::NextTimer() const {
  int64_t next = pressed_ && no_room_until_ > now_ns_ ? no_room_until_ : kNoDeadline;
  for (const auto& [job, flight] : flights_) {
    if (!flight.late) next = std::min(next, flight.deadline_ns);
  }
  for (const auto& [ticket, task] : restores_) {
    if (task.awaited) next = std::min(next, task.deadline_ns);
  }
  for (const auto& [ticket, task] : stores_) {
    const int64_t slow_ns = task.begun_ns + kSlowStoreNs;
    if (!task.all_sent() && slow_ns > now_ns_) next = std::min(next, slow_ns);
  }
  return next;
}

bool Tiering::HasWork() const {
  if (!flights_.empty()) return true;
  for (const Tasks* tasks : {&restores_, &prefetches_, &stores_}) {
    for (const auto& [ticket, task] : *tasks) {
      if (!task.all_sent()) return true;
    }
  }
  return false;
}

void Tiering::CheckInvariants() const {
  std::map<uint64_t, int32_t> in_flight;  // by ticket
  std::vector<BlockId> blocks;
  std::vector<PageId> pages;
  int32_t jobs[2] = {0, 0};
  int32_t loading = 0, costs = 0;
  for (const auto& [job, flight] : flights_) {
    const bool load = flight.direction == CopyDirection::kLoad;
    ++jobs[load];
    CHECK(job <= last_job_ && !flight.pieces.empty());
    CHECK_LE(static_cast<int32_t>(flight.pieces.size()), max_copies_);
    for (const Piece& piece : flight.pieces) {
      const NodeKv& kv = tree_.Kv(piece.node);
      CHECK(tree_.Held(piece.node) && (load ? kv.loading : kv.storing));
      CHECK((piece.tasks == &stores_) == !load);
      blocks.push_back(kv.block);
      pages.push_back(kv.page);
      ++in_flight[piece.ticket];
    }
  }
  CHECK(jobs[0] <= CopyJob::kMaxInFlight && jobs[1] <= CopyJob::kMaxInFlight);
  for (const Tasks* tasks : {&restores_, &prefetches_, &stores_}) {
    for (const auto& [ticket, task] : *tasks) {
      CHECK(tree_.Held(task.node) && task.sent <= task.todo.size());
      CHECK_EQ(task.in_flight, std::exchange(in_flight[ticket], 0));
      CHECK(!task.all_sent() || task.in_flight > 0 || task.awaited);
      const int32_t unsent = static_cast<int32_t>(task.todo.size() - task.sent);
      if (tasks == &stores_) {
        costs += task.cost;
      } else {
        loading += task.in_flight + unsent;
      }
    }
  }
  for (const auto& [ticket, count] : in_flight) CHECK_EQ(count, 0);
  CHECK(loading == loading_ && costs == store_costs_);
  const auto disjoint = [](auto& ids) {
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
  };
  disjoint(blocks);
  disjoint(pages);
}

}  // namespace quire
