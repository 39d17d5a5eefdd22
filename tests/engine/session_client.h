// A client of an engine's sessions, for tests and benchmarks: asks, and waits for the answer.
#pragma once

#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/schedule/sessions/session_store.h"

namespace quire {

// What `ask` says, run where sessions live.
template <typename Answer>
Answer Asked(Engine& engine, std::function<Answer(SessionStore&, int64_t now_ns)> ask) {
  std::promise<Answer> answer;
  engine.Ask(
      [&](SessionStore& sessions, int64_t now_ns) { answer.set_value(ask(sessions, now_ns)); });
  return answer.get_future().get();
}

inline absl::StatusOr<SessionInfo> GetSession(Engine& engine, const SessionName& name) {
  return Asked<absl::StatusOr<SessionInfo>>(
      engine, [&](SessionStore& sessions, int64_t) { return sessions.Get(0, name); });
}

inline absl::StatusOr<SessionInfo> CreateSession(Engine& engine, const SessionName& name,
                                                 const SessionOptions& options) {
  return Asked<absl::StatusOr<SessionInfo>>(engine, [&](SessionStore& sessions, int64_t now_ns) {
    return sessions.Create(0, name, options, now_ns);
  });
}

// Until `done` of the session; what it was then.
inline SessionInfo AwaitSession(Engine& engine, const SessionName& name,
                                const std::function<bool(const SessionInfo&)>& done) {
  for (;;) {
    absl::StatusOr<SessionInfo> info = GetSession(engine, name);
    if (done(info.value())) return *std::move(info);
    std::this_thread::yield();
  }
}

// The request for a turn that appends `text`; null, with the reason in `status`, if there can be
// none.
inline std::unique_ptr<Request> BeginTurn(Engine& engine, const SessionName& name,
                                          const std::vector<int32_t>& text,
                                          absl::Status* status = nullptr) {
  absl::StatusOr<TurnStart> start =
      Asked<absl::StatusOr<TurnStart>>(engine, [&](SessionStore& sessions, int64_t now_ns) {
        return sessions.BeginTurn(0, name, std::nullopt, now_ns);
      });
  if (status != nullptr) *status = start.status();
  if (!start.ok()) return nullptr;
  auto request = std::make_unique<Request>();
  request->turn = start->turn;
  request->prompt = std::move(start->tokens);
  request->prompt.insert(request->prompt.end(), text.begin(), text.end());
  return request;
}

}  // namespace quire
