// A queue between the scheduler thread and the writing thread.
#include "server/session/archive/session_archive.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

// Tokens that wait for a disk that hangs. Beyond, sessions are written whole once it works again.
constexpr int64_t kMaxQueuedBytes = int64_t{256} << 20;
// Between two tries to write incomplete journals, and how many sessions each tries.
constexpr int64_t kMendNs = 1'000'000'000;
constexpr size_t kMendAtOnce = 16;
// Between two log lines about a failing disk; a metric counts each failure.
constexpr int64_t kWarnNs = 10'000'000'000;

int64_t EpochNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - SteadyNowNs();
}

SessionKey KeyOf(const SessionInfo& info) { return {info.tenant, info.name}; }

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
           .make_room = [this] { return MakeRoom(); },
           .on_failure = [this](const char* operation,
                                const absl::Status& status) { CountFailure(operation, status); }},
          contents.next_number) {
  metrics_.TornJournals(contents.torn);
  metrics_.Adopted(ArchiveMetrics::Adoption::kDamaged, contents.damaged);
  metrics_.Adopted(ArchiveMetrics::Adoption::kRefused, contents.unreadable);
}

SessionArchive::~SessionArchive() { Stop(); }

// --- The start.

void SessionArchive::Adopt(Engine* engine) {
  engine_ = engine;
  engine->SetSessionObserver(this);
  const int64_t begin_ns = SteadyNowNs();
  absl::BlockingCounter waiting(static_cast<int>(left_.size()));
  std::vector<std::pair<LeftSession, absl::Status>> answers(left_.size());
  for (size_t i = 0; i < left_.size(); ++i) {
    LeftSession& left = answers[i].first = std::move(left_[i]);
    const JournalRecord& last = left.journal.last;
    const auto in_vocabulary = [this](int32_t id) { return id >= 0 && id < settings_.vocab_size; };
    if (!std::ranges::all_of(left.journal.tokens, in_vocabulary)) {
      answers[i].second = absl::DataLossError("a token is outside the vocabulary");
      waiting.DecrementCount();
      continue;
    }
    engine->Run(
        {.tenant = left.journal.header.tenant,
         .name = left.journal.header.name,
         .action = SessionOperation::Adopt{.options = last.options,
                                           .tokens = left.journal.tokens,
                                           .turns = last.turns,
                                           .created_ns = left.journal.header.created_ns - epoch_ns_,
                                           .used_ns = last.used_ns - epoch_ns_}},
        [&waiting, status = &answers[i].second](const SessionAnswer& answer) {
          *status = answer.status;
          waiting.DecrementCount();
        });
  }
  waiting.Wait();
  left_.clear();
  int64_t adopted = 0;
  for (auto& [left, status] : answers) {
    adopted += status.ok();
    metrics_.Adopted(
        status.ok() ? ArchiveMetrics::Adoption::kAdopted : ArchiveMetrics::Adoption::kRefused, 1);
    if (status.ok()) {
      journals_.Adopt(left.number, left.journal);
    } else {
      Log(Severity::kWarning, "a session of the session directory is not adopted",
          {{"file", TokensFile(left.number)}, {"reason", std::string(status.message())}});
    }
  }
  Log(Severity::kInfo, "session directory opened",
      {{"folder", settings_.folder},
       {"sessions", adopted},
       {"bytes", journals_.bytes()},
       {"seconds", static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9}});
  thread_ = std::thread([this] { Run(); });
}

void SessionArchive::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  deadlines_.Stop();
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
    const auto bytes = static_cast<int64_t>(event.tokens.size() * sizeof(int32_t));
    if (queued_bytes_ + bytes > kMaxQueuedBytes) {
      // A number of kept tokens that no journal has makes it incomplete.
      event.tokens = {};
      if (event.kind == Event::Kind::kWhole) return;
      event.kept = std::numeric_limits<int32_t>::max();
    } else {
      queued_bytes_ += bytes;
    }
    queue_.push_back(std::move(event));
  }
  wake_.notify_one();
}

// --- Turns.

void SessionArchive::BeforeTurn(TenantId, const SessionName&, std::function<void()> submit) {
  submit();
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
      batch.swap(queue_);
      queued_bytes_ = 0;
      stopping = stopping_;
    }
    for (const Event& event : batch) Handle(event);
    if (batch.empty() && stopping) return;
    batch.clear();
    KeepWithin();
    if (!stopping) MendIncomplete();
    metrics_.SetBytes(ArchiveMetrics::File::kTokens, journals_.bytes());
    metrics_.SetSessions(journals_.sessions());
  }
}

void SessionArchive::Handle(const Event& event) {
  const int64_t before = journals_.bytes();
  switch (event.kind) {
    case Event::Kind::kTurnEnd: return EndTurn(event);
    case Event::Kind::kTokens: journals_.Append(event.info, event.kept, event.tokens); break;
    case Event::Kind::kWhole: journals_.Rewrite(event.info, event.tokens); break;
    case Event::Kind::kChange:
      if (event.info.state == SessionState::kClosed) {
        journals_.Remove(KeyOf(event.info));
      } else {
        journals_.Renew(event.info);
      }
  }
  const int64_t grown = journals_.bytes() - before;
  if (grown > 0) metrics_.Moved(ArchiveMetrics::Operation::kWrite, grown);
}

void SessionArchive::EndTurn(const Event& event) {
  const bool saved = journals_.Complete(KeyOf(event.info));
  event.end->Run([this, saved] {
    if (!saved) metrics_.TurnEnded(ArchiveMetrics::Unsaved::kFailed);
  });
}

// Asks the engine for the tokens of sessions whose journals lack some.
void SessionArchive::MendIncomplete() {
  const int64_t now_ns = SteadyNowNs();
  if (now_ns < mend_ns_) return;
  mend_ns_ = now_ns + kMendNs;
  for (const SessionKey& key : journals_.Incomplete(kMendAtOnce)) {
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

void SessionArchive::KeepWithin() {
  const int64_t excess = journals_.bytes() - settings_.max_bytes;
  if (excess > 0) journals_.DropOldest(excess);
}

bool SessionArchive::MakeRoom() { return false; }

void SessionArchive::CountFailure(const char* operation, const absl::Status& status) {
  using enum ArchiveMetrics::Operation;
  metrics_.Failed(std::string(operation) == "remove" ? kRemove : kWrite);
  const int64_t now_ns = SteadyNowNs();
  if (now_ns - last_warning_ns_ < kWarnNs) return;
  last_warning_ns_ = now_ns;
  Log(Severity::kError, "the session directory fails: turns go on, and may not survive a restart",
      {{"operation", operation}, {"reason", std::string(status.message())}});
}

}  // namespace quire
