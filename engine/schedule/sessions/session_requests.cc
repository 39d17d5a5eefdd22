// One overload for each operation.
#include "engine/schedule/sessions/session_requests.h"

#include <utility>

#include "engine/schedule/sessions/session_snapshots.h"

namespace quire {
namespace {

using Operation = SessionOperation;

SessionAnswer One(absl::StatusOr<SessionInfo> session) {
  SessionAnswer answer{.status = session.status()};
  if (session.ok()) answer.sessions.push_back(*std::move(session));
  return answer;
}

SessionAnswer Pages(absl::StatusOr<SessionTransfer> transfer) {
  SessionAnswer answer{.status = transfer.status()};
  if (transfer.ok()) answer.transfer = *std::move(transfer);
  return answer;
}

struct Runner {
  SessionStore& sessions;
  const TenantId tenant;
  const SessionName& name;
  const int64_t now_ns;

  SessionAnswer operator()(const Operation::Create& create) const {
    return One(sessions.Create(tenant, name, create.options, now_ns));
  }
  SessionAnswer operator()(const Operation::Get&) const { return One(sessions.Get(tenant, name)); }
  SessionAnswer operator()(const Operation::List& list) const {
    return {.sessions = sessions.List(tenant, name, list.limit)};
  }
  SessionAnswer operator()(const Operation::Touch& touch) const {
    return One(sessions.Touch(tenant, name, touch, now_ns));
  }
  SessionAnswer operator()(const Operation::Fork& fork) const {
    return One(sessions.Fork(tenant, name, fork.new_name, fork.position, now_ns));
  }
  SessionAnswer operator()(const Operation::Truncate& cut) const {
    return One(sessions.Truncate(tenant, name, cut.position, now_ns));
  }
  SessionAnswer operator()(const Operation::Offload&) const {
    return One(sessions.Offload(tenant, name, now_ns));
  }
  SessionAnswer operator()(const Operation::Save&) const {
    return One(sessions.Save(tenant, name, now_ns));
  }
  SessionAnswer operator()(const Operation::Prefetch&) const {
    return One(sessions.Prefetch(tenant, name, now_ns));
  }
  SessionAnswer operator()(const Operation::Pin&) const {
    return One(sessions.Pin(tenant, name, now_ns));
  }
  SessionAnswer operator()(const Operation::Unpin&) const {
    return One(sessions.Unpin(tenant, name, now_ns));
  }
  SessionAnswer operator()(const Operation::Close&) const {
    return {.status = sessions.Close(tenant, name)};
  }
  SessionAnswer operator()(const Operation::BeginExport&) const {
    return Pages(sessions.BeginExport(tenant, name, now_ns));
  }
  SessionAnswer operator()(const Operation::EndExport& end) const {
    sessions.AbortTurn(end.turn, now_ns);
    return {};
  }
  SessionAnswer operator()(Operation::BeginImport& import) const {
    return Pages(sessions.BeginImport(
        tenant, {name, import.options, std::move(import.tokens), import.kv_tokens}, now_ns));
  }
  SessionAnswer operator()(const Operation::EndImport& end) const {
    return One(sessions.EndImport(end.turn, end.complete, now_ns));
  }
  SessionAnswer operator()(Operation::Adopt& left) const {
    return One(sessions.Adopt(tenant, name, std::move(left)));
  }
  SessionAnswer operator()(const Operation::BeginSnapshot& begin) const {
    SessionAnswer answer = One(sessions.Get(tenant, name));
    if (!answer.status.ok()) return answer;
    answer.transfer = sessions.snapshots().Begin(tenant, name, begin.with_pages);
    return answer;
  }
  SessionAnswer operator()(const Operation::EndSnapshot& end) const {
    sessions.snapshots().End(end.snapshot);
    return {};
  }
  SessionAnswer operator()(const Operation::BeginRecall& begin) const {
    return Pages(sessions.snapshots().BeginRecall(tenant, name, begin.tokens, now_ns));
  }
  SessionAnswer operator()(const Operation::EndRecall& end) const {
    sessions.snapshots().EndRecall(end.recall, end.complete);
    return {};
  }
};

}  // namespace

SessionAnswer RunSessionOperation(SessionStore& sessions, SessionOperation operation,
                                  int64_t now_ns) {
  return std::visit(Runner{sessions, operation.tenant, operation.name, now_ns}, operation.action);
}

}  // namespace quire
