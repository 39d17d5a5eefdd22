// A queue between the scheduler thread and the writing thread.
#include "server/session/archive/session_archive.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <latch>
#include <limits>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

// Between two tries to write incomplete journals, and how many sessions each tries.
constexpr int64_t kMendNs = 1'000'000'000;
constexpr size_t kMendAtOnce = 16;
// Between two log lines about a failing disk; a metric counts each failure.
constexpr int64_t kWarnNs = 10'000'000'000;
// A hand-over looks so often whether it is complete, and ends when nothing was written for so long.
constexpr std::chrono::milliseconds kHandOverLook(10);
constexpr double kHandOverPause = 2;

int64_t EpochNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - SteadyNowNs();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionArchive>> SessionArchive::Open(const Settings& settings,
                                                                     ArchiveMetrics* metrics,
                                                                     std::shared_ptr<Disk> disk) {
  ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Take(settings.folder));
  if (disk == nullptr) disk = OpenDisk(settings.folder);
  ASSIGN_OR_RETURN(DirectoryContents contents,
                   ReadDirectory(*disk, settings.model, settings.model_identity));
  return std::unique_ptr<SessionArchive>(
      new SessionArchive(settings, metrics, std::move(lock), std::move(disk), std::move(contents)));
}

SessionArchive::SessionArchive(const Settings& settings, ArchiveMetrics* metrics,
                               DirectoryLock lock, std::shared_ptr<Disk> disk,
                               DirectoryContents contents)
    : settings_(settings),
      metrics_(*metrics),
      lock_(std::move(lock)),
      disk_(std::move(disk)),
      epoch_ns_(EpochNs()),
      left_(std::move(contents.sessions)),
      journals_(
          *disk_,
          {.model = settings.model,
           .model_identity = settings.model_identity,
           .epoch_ns = epoch_ns_,
           .make_room = [this] { return kv_files_.DropOldest(); },
           .on_failure = [this](const char* operation,
                                const absl::Status& status) { CountFailure(operation, status); }},
          contents.next_number),
      kv_files_(*disk_, [this](const absl::Status& status) { CountFailure("remove", status); }) {
  metrics_.TornJournals(contents.torn);
  metrics_.Adopted(ArchiveMetrics::Adoption::kDamaged, contents.damaged);
  metrics_.Adopted(ArchiveMetrics::Adoption::kRefused, contents.unreadable);
}

SessionArchive::~SessionArchive() { Stop(); }

// --- The start.

void SessionArchive::Adopt(Engine* engine, HostArenas arenas) {
  engine_ = engine;
  engine->SetSessionObserver(this);
  const int64_t begin_ns = SteadyNowNs();
  std::vector<SessionAnswer> answers(left_.size());
  std::latch waiting(static_cast<std::ptrdiff_t>(left_.size()));
  for (size_t i = 0; i < left_.size(); ++i) {
    const Journal& journal = left_[i].journal;
    const auto known = [this](int32_t id) { return id >= 0 && id < settings_.limits.vocab_size; };
    if (!std::ranges::all_of(journal.tokens, known)) {
      answers[i].status = absl::DataLossError("a token is outside the vocabulary");
      waiting.count_down();
      continue;
    }
    SessionOperation::Adopt adopt{.options = journal.last.options,
                                  .tokens = journal.tokens,
                                  .turns = journal.last.turns,
                                  .created_ns = journal.header.created_ns - epoch_ns_,
                                  .used_ns = journal.last.used_ns - epoch_ns_};
    engine->Run(
        {.tenant = journal.header.tenant, .name = journal.header.name, .action = std::move(adopt)},
        [&waiting, out = &answers[i]](SessionAnswer answer) {
          *out = std::move(answer);
          waiting.count_down();
        });
  }
  waiting.wait();
  for (size_t i = 0; i < left_.size(); ++i) {
    const absl::Status& status = answers[i].status;
    if (status.ok()) {
      TakeOver(std::move(left_[i]), answers[i].sessions.front());
      continue;
    }
    metrics_.Adopted(ArchiveMetrics::Adoption::kRefused, 1);
    Log(Severity::kWarning, "a session of the session directory is not adopted",
        {{"file", TokensFile(left_[i].number)}, {"reason", std::string(status.message())}});
  }
  left_.clear();
  ShowUse();
  Log(Severity::kInfo, "session directory opened",
      {{"folder", settings_.folder},
       {"sessions", journals_.sessions()},
       {"token_bytes", journals_.bytes()},
       {"kv_bytes", kv_files_.bytes()},
       {"seconds", static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9}});
  if (!arenas.empty()) StartKv(std::move(arenas));
  thread_ = std::thread([this] { Run(); });
}

void SessionArchive::TakeOver(LeftSession left, const SessionInfo& info) {
  metrics_.Adopted(ArchiveMetrics::Adoption::kAdopted, 1);
  journals_.Adopt(left.number, left.journal);
  if (left.kv_bytes > 0) kv_files_.Adopt(info, left.number, left.kv_bytes);
}

void SessionArchive::StartKv(HostArenas arenas) {
  const auto failed = [this](const char* operation) {
    return [this, operation](const absl::Status& status) { CountFailure(operation, status); };
  };
  recalls_ = std::make_unique<KvRecalls>(KvRecalls::Parts{.disk = *disk_,
                                                          .files = kv_files_,
                                                          .engine = *engine_,
                                                          .arenas = arenas,
                                                          .limits = settings_.limits,
                                                          .metrics = metrics_,
                                                          .deadlines = deadlines_,
                                                          .on_failure = failed("read")});
  saver_ = std::make_unique<KvSaver>(KvSaver::Parts{
      .disk = *disk_,
      .files = kv_files_,
      .engine = *engine_,
      .arenas = std::move(arenas),
      .shape = settings_.limits.shape,
      .metrics = metrics_,
      .make_room = [this](int64_t bytes, int64_t used_ns) { return MakeRoom(bytes, used_ns); },
      .on_failure = failed("write")});
}

void SessionArchive::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (recalls_ != nullptr) recalls_->Stop();
  if (saver_ != nullptr) saver_->Stop();
  if (thread_.joinable()) thread_.join();
  deadlines_.Stop();
}

void SessionArchive::HandOver(double seconds) {
  if (saver_ == nullptr) return;
  // All changes that calls have asked for come first.
  const auto heard = std::make_shared<std::promise<void>>();
  const auto mark = std::make_shared<OnceCall>([heard] { heard->set_value(); });
  engine_->Run({.action = SessionOperation::Get()}, [this, mark](const SessionAnswer&) {
    Push({.kind = Event::Kind::kMark, .end = mark});
  });
  heard->get_future().wait_for(std::chrono::duration<double>(seconds));
  kv_files_.Hurry();
  for (const auto& [tenant, name] : kv_files_.OnDeviceAlone()) {
    engine_->Run({.tenant = tenant, .name = name, .action = SessionOperation::Save()},
                 [](const SessionAnswer&) {});
  }
  const int64_t begin_ns = SteadyNowNs();
  const auto since = [](int64_t ns) { return static_cast<double>(SteadyNowNs() - ns) * 1e-9; };
  int64_t bytes = -1, changed_ns = begin_ns;
  while (kv_files_.NumUnsaved() > 0 || !kv_files_.OnDeviceAlone().empty()) {
    const int64_t now_bytes = metrics_.Total(ArchiveMetrics::Operation::kWrite);
    if (std::exchange(bytes, now_bytes) != now_bytes) changed_ns = SteadyNowNs();
    // KV that does not come to the host (it may be full) is not waited for.
    if (since(begin_ns) > seconds || since(changed_ns) > kHandOverPause) break;
    // The scheduler thread waits for this lock, so no other is taken under it.
    std::unique_lock lock(mutex_);
    hand_over_.wait_for(lock, kHandOverLook);
  }
  Log(Severity::kInfo, "sessions handed over to the session directory",
      {{"kv_bytes", kv_files_.bytes()},
       {"unsaved", kv_files_.NumUnsaved()},
       {"seconds", since(begin_ns)}});
}

// --- The scheduler thread's.

void SessionArchive::OnSessionChange(const SessionInfo& info) {
  Push({.kind = Event::Kind::kChange, .info = info});
  if (SessionObserver* const next = next_.load()) next->OnSessionChange(info);
}

void SessionArchive::OnTokens(const SessionInfo& info, int32_t kept,
                              std::span<const int32_t> added) {
  Push({.kind = Event::Kind::kTokens,
        .info = info,
        .kept = kept,
        .tokens = {added.begin(), added.end()}});
}

void SessionArchive::Push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    queue_.Push(std::move(event));
  }
  wake_.notify_one();
}

// --- Turns.

void SessionArchive::BeforeTurn(TenantId tenant, const SessionName& name,
                                std::function<void()> submit) {
  if (recalls_ == nullptr) return submit();
  recalls_->Before({tenant, name}, std::move(submit));
}

void SessionArchive::AfterTurn(TenantId tenant, const SessionName& name, bool cut,
                               std::function<void()> done) {
  const auto end = std::make_shared<OnceCall>(std::move(done));
  deadlines_.At(SteadyNowNs() + kPatienceNs, [this, end] {
    end->Run([this] { metrics_.TurnEnded(ArchiveMetrics::Unsaved::kLate); });
  });
  const auto push = [this, end, tenant, name] {
    Push({.kind = Event::Kind::kTurnEnd, .info = {.name = name, .tenant = tenant}, .end = end});
  };
  if (!cut) return push();
  // The cut is on its way to the scheduler thread: this comes behind it.
  engine_->Run({.tenant = tenant, .name = name, .action = SessionOperation::Get()},
               [push](const SessionAnswer&) { push(); });
}

// --- The writing thread.

void SessionArchive::Run() {
  std::vector<Event> batch;
  for (;;) {
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::nanoseconds(kMendNs),
                     [this] { return stopping_ || !queue_.empty(); });
      queue_.Take(&batch);
      stopping = stopping_;
    }
    for (const Event& event : batch) Handle(event);
    if (batch.empty() && stopping) return;
    batch.clear();
    KeepWithin();
    if (!stopping) MendIncomplete();
    ShowUse();
  }
}

void SessionArchive::ShowUse() {
  metrics_.SetBytes(ArchiveMetrics::File::kTokens, journals_.bytes());
  metrics_.SetBytes(ArchiveMetrics::File::kKv, kv_files_.bytes());
  metrics_.SetSessions(journals_.sessions());
}

void SessionArchive::Handle(const Event& event) {
  if (event.kind == Event::Kind::kMark) return event.end->Run([] {});
  if (event.kind == Event::Kind::kTurnEnd) return EndTurn(event);
  const SessionKey key(event.info.tenant, event.info.name);
  const int64_t before = journals_.bytes();
  if (event.kind == Event::Kind::kTokens) {
    // A number of kept tokens that no journal has makes it incomplete.
    const int32_t kept = event.incomplete ? std::numeric_limits<int32_t>::max() : event.kept;
    journals_.Append(event.info, kept, event.tokens);
    kv_files_.Cut(key, event.kept);
  } else if (event.kind == Event::Kind::kWhole) {
    journals_.Rewrite(event.info, event.tokens);
  } else if (event.info.state == SessionState::kClosed) {
    journals_.Remove(key);
    return kv_files_.Forget(key);
  } else {
    journals_.Renew(event.info);
  }
  if (const uint64_t number = journals_.NumberOf(key); number != 0) {
    kv_files_.Note(number, event.info);
  }
  const int64_t grown = journals_.bytes() - before;
  if (grown > 0) metrics_.Moved(ArchiveMetrics::Operation::kWrite, grown);
}

void SessionArchive::EndTurn(const Event& event) {
  const bool saved = journals_.Complete({event.info.tenant, event.info.name});
  event.end->Run([this, saved] {
    if (!saved) metrics_.TurnEnded(ArchiveMetrics::Unsaved::kFailed);
  });
}

// Asks the engine for the tokens of sessions whose journals lack some.
void SessionArchive::MendIncomplete() {
  const int64_t now_ns = SteadyNowNs();
  if (now_ns < mend_ns_) return;
  mend_ns_ = now_ns + kMendNs;
  for (const SessionKey& key : journals_.NextIncomplete(kMendAtOnce)) {
    engine_->Run({.tenant = key.first,
                  .name = key.second,
                  .action = SessionOperation::BeginSnapshot{.with_pages = false}},
                 [this](SessionAnswer answer) {
                   if (!answer.status.ok()) return;
                   Push({.kind = Event::Kind::kWhole,
                         .info = answer.sessions.front(),
                         .tokens = std::move(answer.transfer.tokens)});
                 });
  }
}

// KV goes before tokens.
void SessionArchive::KeepWithin() {
  const auto excess = [this] {
    return journals_.bytes() + kv_files_.bytes() - settings_.max_bytes;
  };
  while (excess() > 0 && kv_files_.DropOldest()) continue;
  if (excess() > 0) journals_.DropOldest(excess());
}

bool SessionArchive::MakeRoom(int64_t bytes, int64_t used_ns) {
  while (journals_.bytes() + kv_files_.bytes() + bytes > settings_.max_bytes) {
    if (!kv_files_.DropOldest(used_ns)) return false;
  }
  return true;
}

void SessionArchive::CountFailure(const char* operation, const absl::Status& status) {
  using enum ArchiveMetrics::Operation;
  const std::string name(operation);
  metrics_.Failed(name == "remove" ? kRemove : name == "read" ? kRead : kWrite);
  const int64_t now_ns = SteadyNowNs();
  int64_t last_ns = last_warning_ns_.load();
  if (last_ns != 0 && now_ns - last_ns < kWarnNs) return;
  if (!last_warning_ns_.compare_exchange_strong(last_ns, now_ns)) return;
  Log(Severity::kError, "the session directory fails: turns go on, and may not survive a restart",
      {{"operation", operation}, {"reason", std::string(status.message())}});
}

}  // namespace quire
