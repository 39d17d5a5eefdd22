// SessionOperation: a client's operation on sessions (all but turns), and its answer, as plain
// values. The scheduler thread runs operations between two steps (Engine::Run).
//
// Errors: NOT_FOUND for a name that this tenant does not have (another tenant's session looks the
// same); ALREADY_EXISTS; FAILED_PRECONDITION for a busy session; INVALID_ARGUMENT for values out of
// range or a position beyond the end; RESOURCE_EXHAUSTED for a quota. A refusal leaves the session
// unharmed. Its reason for programs is the payload kSessionReason: SESSION_NOT_FOUND,
// SESSION_EXISTS, SESSION_BUSY, SESSION_FULL, WRONG_POSITION (with the position in
// kSessionPosition), POSITION_BEYOND_END, TOO_MANY_SESSIONS, TOO_MANY_SESSION_TOKENS, PIN_QUOTA,
// EMPTY_PROMPT; names and options have none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/copy_plan.h"
#include "engine/values/session.h"

namespace quire {

inline constexpr char kSessionReason[] = "quire.session/reason";
inline constexpr char kSessionPosition[] = "quire.session/position";  // decimal

struct SessionOperation {
  struct Create {
    SessionOptions options;
  };
  struct Get {};
  // The sessions after `name` in the order of names, at most `limit`.
  struct List {
    int32_t limit = 0;
  };
  // Renews the lease and changes the options that are given.
  struct Touch {
    std::optional<double> ttl_seconds, idle_offload_after_seconds;
    std::optional<int32_t> retain_priority;
  };
  // A new session with the first `position` tokens (nullopt: all) of `name` and with its options.
  // Both share blocks; nothing is copied.
  struct Fork {
    SessionName new_name;
    std::optional<int64_t> position;
  };
  // Forgets the tokens from `position` on.
  struct Truncate {
    int64_t position = 0;
  };
  // Asks for the KV to go to the host and off the device, except for blocks that another session
  // keeps.
  struct Offload {};
  // Asks for a copy on the host and leaves the device's where it is.
  struct Save {};
  // Asks for the KV to come back to the device.
  struct Prefetch {};
  // Keeps the KV that is on the device there, and as much of the KV of later turns as the quota
  // allows.
  struct Pin {};
  struct Unpin {};
  struct Close {};
  // Makes the session busy until EndExport, and holds the pages in SessionAnswer::transfer.
  struct BeginExport {};
  struct EndExport {
    uint64_t turn = 0;
  };
  // Makes a new session with these tokens, busy until EndImport. By then the caller has filled the
  // pages in SessionAnswer::transfer with the KV of the first `kv_tokens` tokens.
  struct BeginImport {
    SessionOptions options;
    std::vector<int32_t> tokens;
    int32_t kv_tokens = 0;
  };
  // `complete`: the session is there. Otherwise it is gone again.
  struct EndImport {
    uint64_t turn = 0;
    bool complete = false;
  };
  // Makes a session as another server left it: its tokens without their KV, its options and its
  // lease. It is idle at once.
  struct Adopt {
    SessionOptions options;
    std::vector<int32_t> tokens;
    uint64_t turns = 0;
    int64_t created_ns = 0, used_ns = 0;
  };
  // Reads the session's tokens. With pages: their host pages keep their bytes until EndSnapshot,
  // whatever happens to the session. The session is not busy, and no block is held.
  struct BeginSnapshot {
    bool with_pages = true;
  };
  struct EndSnapshot {
    uint64_t snapshot = 0;
  };
  // Takes host pages for the KV of `tokens`, as far as they are the session's; makes room for them
  // as a store does. The session is not busy. The caller fills the pages by EndRecall.
  struct BeginRecall {
    std::vector<int32_t> tokens;
  };
  // `complete`: all pages are filled, and the session keeps them. Otherwise they are free again.
  struct EndRecall {
    uint64_t recall = 0;
    bool complete = false;
  };
  using Action = std::variant<Create, Get, List, Touch, Fork, Truncate, Offload, Save, Prefetch,
                              Pin, Unpin, Close, BeginExport, EndExport, BeginImport, EndImport,
                              Adopt, BeginSnapshot, EndSnapshot, BeginRecall, EndRecall>;

  TenantId tenant = 0;
  SessionName name;  // EndExport and EndImport use their turn instead
  Action action;
};

// A session on its way out of or into the server: page i is for the KV of block i.
struct SessionTransfer {
  uint64_t turn = 0;            // keeps the session busy; of a snapshot or a recall: its number
  std::vector<int32_t> tokens;  // of an export or a snapshot
  // kNoPage, where pages are to be filled: the KV exists already, or there is no room for this and
  // all later blocks.
  std::vector<PageId> pages;
  // Tokens in the pages; the last page may be partly filled. Not of an import.
  int32_t kv_tokens = 0;
};

struct SessionAnswer {
  absl::Status status;
  // The session after the operation; all that List found; none after Close and the exports.
  std::vector<SessionInfo> sessions;
  SessionTransfer transfer;  // of BeginExport, BeginImport, BeginSnapshot and BeginRecall
};

// Takes the answer of one operation, on the scheduler thread: it must hand the answer over to
// another thread, and not block. The engine destroys it without a call if it ends first.
using SessionCompletion = std::function<void(SessionAnswer)>;

// Hears of every change of a session that a watcher could see, on the scheduler thread; must not
// block or call back.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  virtual void OnSessionChange(const SessionInfo& info) = 0;
  // The session has its first `kept` tokens as before, and `added` behind them; the span is valid
  // during the call. Comes before the OnSessionChange with the new position. Not of Adopt.
  virtual void OnTokens(const SessionInfo& info, int32_t kept, std::span<const int32_t> added) {
    static_cast<void>(info), static_cast<void>(kept), static_cast<void>(added);
  }
};

}  // namespace quire
