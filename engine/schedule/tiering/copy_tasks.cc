// Tasks begin, fail and end; what they hold goes with them.
#include "engine/schedule/tiering/copy_tasks.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/sessions/session_pressure.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr TaskKind kKinds[] = {TaskKind::kRestore, TaskKind::kPrefetch, TaskKind::kStore};

}  // namespace

CopyTask* CopyTasks::Find(TaskKind kind, uint64_t ticket) {
  const auto found = of(kind).find(ticket);
  return found == of(kind).end() ? nullptr : &found->second;
}

bool CopyTasks::HasUnsent() const {
  return std::ranges::any_of(kKinds, [this](TaskKind kind) {
    return std::ranges::any_of(all(kind),
                               [](const auto& entry) { return !entry.second.all_sent(); });
  });
}

CopyTask& CopyTasks::Begin(TaskKind kind, NodeId node, const std::vector<NodeId>& todo) {
  const int32_t cost = tree_.HoldCost(node);
  tree_.Hold(node);
  CopyTask& task = of(kind)[++last_ticket_];
  task = {.node = node, .todo = todo, .cost = cost};
  return task;
}

uint64_t CopyTasks::BeginLoad(TaskKind kind, NodeId node, const std::vector<NodeId>& todo,
                              bool reserved) {
  const CopyTask& task = Begin(kind, node, todo);
  for (const NodeId each : task.todo) {
    tree_.host().BeginLoad(each, reserved ? pool_.TakeReserved() : pool_.Take());
  }
  num_loading_ += static_cast<int32_t>(task.todo.size());
  return last_ticket_;
}

uint64_t CopyTasks::BeginStore(NodeId node, const std::vector<NodeId>& todo, int64_t deadline_ns) {
  CopyTask& task = Begin(TaskKind::kStore, node, todo);
  task.deadline_ns = deadline_ns;
  store_costs_ += task.cost;
  return last_ticket_;
}

TaskCopy CopyTasks::SendNext(TaskKind kind, uint64_t ticket) {
  CopyTask& task = of(kind).at(ticket);
  ++task.in_flight;
  return {task.todo[task.sent++], kind, ticket};
}

void CopyTasks::SkipNext(uint64_t ticket) {
  CopyTask& task = of(TaskKind::kStore).at(ticket);
  task.todo.erase(task.todo.begin() + static_cast<std::ptrdiff_t>(task.sent));
}

void CopyTasks::EndCopy(const TaskCopy& copy, bool ok, bool page_bad) {
  --of(copy.kind).at(copy.ticket).in_flight;
  if (copy.kind == TaskKind::kStore) {
    tree_.host().EndStore(copy.node, ok);
  } else {
    --num_loading_;
    tree_.host().EndLoad(copy.node, ok, page_bad);
  }
  if (!ok) Fail(copy.kind, copy.ticket);
}

void CopyTasks::Fail(TaskKind kind, uint64_t ticket) {
  CopyTask& task = of(kind).at(ticket);
  task.failed = true;
  for (; !task.all_sent(); task.todo.pop_back()) {
    if (kind == TaskKind::kStore) continue;
    tree_.host().EndLoad(task.todo.back(), false, false);
    --num_loading_;
  }
}

void CopyTasks::EndIfDone(TaskKind kind, uint64_t ticket) {
  const auto found = of(kind).find(ticket);
  const CopyTask& task = found->second;
  if (!task.all_sent() || task.in_flight > 0 || task.awaited) return;
  const NodeId node = task.node;
  if (kind == TaskKind::kStore) store_costs_ -= task.cost;
  of(kind).erase(found);
  tree_.Release(node);
  sessions_.OnTierChange(node);
}

void CopyTasks::AbandonRestore(uint64_t ticket) {
  CopyTask* task = Find(TaskKind::kRestore, ticket);
  if (task == nullptr) return;
  task->awaited = false;
  Fail(TaskKind::kRestore, ticket);
  EndIfDone(TaskKind::kRestore, ticket);
}

// The rest of a store is not sent: its hold shrinks to the nodes whose copies are in flight.
void CopyTasks::GiveUpUnsent(uint64_t ticket) {
  ++num_given_up_;
  Fail(TaskKind::kStore, ticket);
  CopyTask& task = of(TaskKind::kStore).at(ticket);
  if (task.in_flight == 0) return EndIfDone(TaskKind::kStore, ticket);
  const int32_t before = pool_.available();
  const NodeId node = std::exchange(task.node, task.todo.back());
  tree_.Hold(task.node);
  tree_.Release(node);
  const int32_t freed = std::min(pool_.available() - before, task.cost);
  task.cost -= freed;
  store_costs_ -= freed;
  sessions_.OnTierChange(node);
}

bool CopyTasks::GiveUpStore(int64_t deadline_by_ns) {
  const auto holds_unsent = [deadline_by_ns](const auto& entry) {
    const CopyTask& task = entry.second;
    return task.deadline_ns <= deadline_by_ns && task.cost > 0 && !task.all_sent();
  };
  const Tasks& stores = all(TaskKind::kStore);
  const int32_t before = pool_.available();
  while (pool_.available() == before) {
    const auto newest = std::find_if(stores.rbegin(), stores.rend(), holds_unsent);
    if (newest == stores.rend()) return false;
    GiveUpUnsent(newest->first);
  }
  return true;
}

void CopyTasks::GiveUpUnsentStores() {
  const Tasks& stores = all(TaskKind::kStore);
  for (auto it = stores.begin(); it != stores.end();) GiveUpUnsent((it++)->first);
}

void CopyTasks::EndAll() {
  for (const TaskKind kind : kKinds) {
    while (!of(kind).empty()) {
      auto& [ticket, task] = *of(kind).begin();
      task.awaited = false;
      Fail(kind, ticket);
      EndIfDone(kind, ticket);
    }
  }
}

void CopyTasks::CheckInvariants(std::map<uint64_t, int32_t>& in_flight) const {
  int32_t loading = 0, costs = 0;
  for (const TaskKind kind : kKinds) {
    for (const auto& [ticket, task] : all(kind)) {
      CHECK(tree_.Held(task.node) && task.sent <= task.todo.size());
      CHECK_EQ(task.in_flight, std::exchange(in_flight[ticket], 0));
      CHECK(!task.all_sent() || task.in_flight > 0 || task.awaited);
      const int32_t unsent = static_cast<int32_t>(task.todo.size() - task.sent);
      if (kind == TaskKind::kStore) {
        costs += task.cost;
      } else {
        loading += task.in_flight + unsent;
      }
    }
  }
  for (const auto& [ticket, count] : in_flight) CHECK_EQ(count, 0);
  CHECK(loading == num_loading_ && costs == store_costs_);
}

}  // namespace quire
