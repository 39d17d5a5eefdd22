// Open, take pages, read, hand over: each step is a job that the one before posts.
#include "server/session/archive/kv_recalls.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace quire {
namespace {

constexpr int kMaxThreads = 8;
// The longest that a turn waits: bounds of twice the time that computing is expected to take.
constexpr double kLeastSeconds = 0.05;
constexpr double kMostSeconds = 10;
constexpr double kUnknownSeconds = 2;  // before the first prompt was computed
// Reading may take so much longer than computing: it leaves the device to others.
constexpr double kWorth = 1.2;
// Every so many declined recalls one is tried: else the speed is never measured again.
constexpr int32_t kProbeEvery = 16;

int Threads() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / 2, 2, kMaxThreads);
}

}  // namespace

struct KvRecalls::Recall {
  KvFiles::Task task;
  int64_t begin_ns = 0;
  std::unique_ptr<KvFileReader> reader;
  uint64_t number = 0;            // of the engine's recall; 0: not begun
  int32_t kv_tokens = 0;          // that the file and the session have in common
  std::atomic<bool> late{false};  // the turns went on: reading is in vain
  std::mutex mutex;
  bool submitted = false;                      // under mutex
  std::vector<std::function<void()>> submits;  // under mutex
};

KvRecalls::KvRecalls(Parts parts) : parts_(std::move(parts)), threads_(Threads()) {}

KvRecalls::~KvRecalls() { Stop(); }

void KvRecalls::Stop() {
  std::map<SessionKey, Held> left;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left = recalls_;
  }
  for (const auto& [key, recall] : left) {
    recall->late.store(true);
    Submit(recall);
  }
  threads_.Stop();
}

// --- A turn comes.

void KvRecalls::Before(const SessionKey& key, std::function<void()> submit) {
  Held recall;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = recalls_.find(key);
    if (found != recalls_.end()) {
      recall = found->second;
    } else if (!stopping_) {
      recall = Begin(key);
      is_new = recall != nullptr;
    }
  }
  if (recall == nullptr) return submit();
  {
    const std::lock_guard lock(recall->mutex);
    if (!recall->submitted) recall->submits.push_back(std::exchange(submit, nullptr));
  }
  if (submit != nullptr) return submit();
  if (!is_new) return;
  const double seconds = ComputeSeconds(recall->task.position);
  if (!IsWorthIt(recall->task, seconds)) return Finish(recall, Outcome::kDeclined);
  const double patience = std::clamp(2 * seconds, kLeastSeconds, kMostSeconds);
  parts_.deadlines.At(recall->begin_ns + static_cast<int64_t>(patience * 1e9), [this, recall] {
    recall->late.store(true);
    Submit(recall);
  });
  threads_.Post([this, recall] { Open(recall); });
}

KvRecalls::Held KvRecalls::Begin(const SessionKey& key) {
  std::optional<KvFiles::Task> task = parts_.files.BeginRead(key);
  if (!task.has_value()) return nullptr;
  const auto recall = std::make_shared<Recall>();
  recall->task = *std::move(task);
  recall->begin_ns = SteadyNowNs();
  recalls_[key] = recall;
  return recall;
}

double KvRecalls::ComputeSeconds(int32_t tokens) const {
  const double rate = parts_.engine.Stats().tiering.prefill_tokens_per_second;
  return rate > 0 ? tokens / rate : kUnknownSeconds;
}

bool KvRecalls::IsWorthIt(const KvFiles::Task& task, double compute_seconds) {
  const double rate = bytes_per_second_.load();
  if (rate == 0) return true;
  const double seconds = static_cast<double>(task.bytes) / rate;
  if (seconds > kWorth * compute_seconds) return ++declined_ % kProbeEvery == 0;
  declined_.store(0);
  return true;
}

// --- The threads' jobs.

void KvRecalls::Open(const Held& recall) {
  auto reader = KvFileReader::Open(parts_.disk, KvFile(recall->task.number), parts_.limits);
  if (!reader.ok()) return Fail(recall, reader.status());
  recall->reader = *std::move(reader);
  const auto& [tenant, name] = recall->task.key;
  const auto fill = [this, recall](SessionAnswer answer) {
    threads_.Post([this, recall, answer = std::move(answer)]() mutable {
      // The session may have been closed.
      if (!answer.status.ok()) return Finish(recall, Outcome::kFailed);
      Fill(recall, std::move(answer.transfer));
    });
  };
  parts_.engine.Run({.tenant = tenant,
                     .name = name,
                     .action = SessionOperation::BeginRecall{recall->reader->tokens()}},
                    fill);
}

void KvRecalls::Fill(const Held& recall, SessionTransfer start) {
  recall->number = start.turn;
  recall->kv_tokens = start.kv_tokens;
  KvFileReader& reader = *recall->reader;
  reader.SetPages(parts_.arenas, std::move(start.pages));
  const int threads = std::clamp(reader.num_blocks(), 1, threads_.size());
  reader.Expect(threads, &recall->late);
  for (int i = 1; i < threads; ++i) threads_.Post([this, recall] { Read(recall); });
  Read(recall);
}

void KvRecalls::Read(const Held& recall) {
  if (!recall->reader->Read()) return;
  const absl::Status status = recall->reader->Finish();
  if (!status.ok()) return Fail(recall, status);
  const auto bytes = static_cast<double>(recall->reader->bytes_read());
  const double now = bytes * 1e9 / static_cast<double>(SteadyNowNs() - recall->begin_ns);
  const double before = bytes_per_second_.load();
  if (bytes > 0) bytes_per_second_.store(before == 0 ? now : 0.7 * before + 0.3 * now);
  Finish(recall, Outcome::kRecalled);
}

void KvRecalls::Fail(const Held& recall, const absl::Status& status) {
  if (absl::IsCancelled(status)) return Finish(recall, Outcome::kLate);
  // Not the disk's fault: the file is damaged, of another shape, or gone.
  const bool damaged = absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
                       absl::IsNotFound(status);
  if (!damaged) {
    parts_.on_failure(status);
    return Finish(recall, Outcome::kFailed);
  }
  Log(Severity::kWarning, "a session's KV file is not usable: its KV is computed again",
      {{"file", KvFile(recall->task.number)}, {"reason", std::string(status.message())}});
  recall->kv_tokens = 0;
  Finish(recall, Outcome::kDamaged);
}

// The engine runs EndRecall before the turns that are submitted here.
void KvRecalls::Finish(const Held& recall, Outcome outcome) {
  const bool complete = outcome == Outcome::kRecalled;
  if (recall->number != 0) {
    parts_.engine.Run(
        {.action = SessionOperation::EndRecall{.recall = recall->number, .complete = complete}},
        [](const SessionAnswer&) {});
  }
  if (recall->reader != nullptr) {
    parts_.metrics.Moved(ArchiveMetrics::Operation::kRead, recall->reader->bytes_read());
  }
  parts_.metrics.Ended(outcome);
  const bool known = complete || outcome == Outcome::kDamaged;
  parts_.files.EndRead(recall->task, known ? std::optional(recall->kv_tokens) : std::nullopt);
  {
    const std::lock_guard lock(mutex_);
    recalls_.erase(recall->task.key);
  }
  Submit(recall);
}

void KvRecalls::Submit(const Held& recall) {
  std::vector<std::function<void()>> submits;
  {
    const std::lock_guard lock(recall->mutex);
    recall->submitted = true;
    submits.swap(recall->submits);
  }
  for (const std::function<void()>& submit : submits) submit();
}

}  // namespace quire
