// A client of an engine's sessions, for tests and benchmarks: runs an operation and waits for it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/schedule/sessions/session_store.h"

namespace quire {

inline SessionAnswer RunSession(Engine& engine, const SessionName& name,
                                SessionOperation::Action action) {
  std::promise<SessionAnswer> answer;
  engine.Run({.name = name, .action = std::move(action)},
             [&](SessionAnswer given) { answer.set_value(std::move(given)); });
  return answer.get_future().get();
}

// The session after an operation that answers with one.
inline absl::StatusOr<SessionInfo> ChangeSession(Engine& engine, const SessionName& name,
                                                 SessionOperation::Action action) {
  SessionAnswer answer = RunSession(engine, name, std::move(action));
  if (!answer.status.ok()) return answer.status;
  return std::move(answer.sessions.at(0));
}

inline absl::StatusOr<SessionInfo> GetSession(Engine& engine, const SessionName& name) {
  return ChangeSession(engine, name, SessionOperation::Get());
}

inline absl::StatusOr<SessionInfo> CreateSession(Engine& engine, const SessionName& name,
                                                 const SessionOptions& options) {
  return ChangeSession(engine, name, SessionOperation::Create{options});
}

// Waits until `done(session)` is true. Returns the session as it was then.
inline SessionInfo AwaitSession(Engine& engine, const SessionName& name,
                                const std::function<bool(const SessionInfo&)>& done) {
  for (;;) {
    absl::StatusOr<SessionInfo> info = GetSession(engine, name);
    if (done(info.value())) return *std::move(info);
    std::this_thread::yield();
  }
}

// The request for a turn that appends `text`.
inline std::unique_ptr<Request> MakeTurn(const SessionName& name,
                                         const std::vector<int32_t>& text) {
  auto request = std::make_unique<Request>();
  request->prompt = text;
  request->session_turn = TurnRequest{.session = name};
  return request;
}

}  // namespace quire
