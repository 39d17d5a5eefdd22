// One series for each outcome, all there from the start.
#include "server/metrics/archive_metrics.h"

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "server/metrics/metric_registry.h"

namespace quire {
namespace {

using prometheus::Counter;
using prometheus::Gauge;

template <typename Metric>
std::vector<Metric*> Series(prometheus::Family<Metric>& family, const char* label,
                            std::initializer_list<const char*> values) {
  std::vector<Metric*> series;
  for (const char* value : values) series.push_back(&family.Add({{label, value}}));
  return series;
}

template <typename Enum>
size_t Index(Enum value) {
  return static_cast<size_t>(value);
}

}  // namespace

struct ArchiveMetrics::State {
  explicit State(MetricRegistry& r)
      : bytes(Series(r.Gauges("quire_session_dir_bytes", "Bytes in the session directory."), "file",
                     {"tokens", "kv"})),
        sessions(r.OneGauge("quire_session_dir_sessions", "Sessions in the session directory.")),
        moved({&r.OneCounter("quire_session_dir_written_bytes_total",
                             "Bytes written to the session directory."),
               &r.OneCounter("quire_session_dir_read_bytes_total",
                             "Bytes read from the session directory.")}),
        failures(Series(r.Counters("quire_session_dir_failures_total",
                                   "Failed operations on the session directory."),
                        "operation", {"write", "read", "remove"})),
        saves(Series(r.Counters("quire_session_saves_total",
                                "KV of idle sessions written to the session directory."),
                     "outcome", {"saved", "overtaken", "no_room", "failed"})),
        recalls(Series(r.Counters("quire_session_recalls_total",
                                  "KV read back from the session directory for a turn."),
                       "outcome", {"recalled", "declined", "late", "damaged", "failed"})),
        adoptions(Series(r.Counters("quire_session_adoptions_total",
                                    "Sessions found in the session directory at the start."),
                         "outcome", {"adopted", "damaged", "refused"})),
        unsaved(Series(r.Counters("quire_session_turns_unsaved_total",
                                  "Turns that ended before the session directory had them."),
                       "reason", {"late", "failed"})),
        torn(r.OneCounter("quire_session_journals_torn_total",
                          "Journals whose unfinished last record was cut off.")) {}

  const std::vector<Gauge*> bytes;
  Gauge& sessions;
  const std::vector<Counter*> moved;
  const std::vector<Counter*> failures, saves, recalls, adoptions, unsaved;
  Counter& torn;
};

ArchiveMetrics::ArchiveMetrics(MetricRegistry& registry)
    : state_(std::make_unique<State>(registry)) {}

ArchiveMetrics::~ArchiveMetrics() = default;

void ArchiveMetrics::SetBytes(File file, int64_t bytes) {
  state_->bytes[Index(file)]->Set(static_cast<double>(bytes));
}

void ArchiveMetrics::SetSessions(int64_t sessions) {
  state_->sessions.Set(static_cast<double>(sessions));
}

void ArchiveMetrics::Moved(Operation operation, int64_t bytes) {
  state_->moved[Index(operation)]->Increment(static_cast<double>(bytes));
}

int64_t ArchiveMetrics::Total(Operation operation) const {
  return static_cast<int64_t>(state_->moved[Index(operation)]->Value());
}

void ArchiveMetrics::Failed(Operation operation) {
  state_->failures[Index(operation)]->Increment();
}

void ArchiveMetrics::Ended(Save outcome) { state_->saves[Index(outcome)]->Increment(); }

void ArchiveMetrics::Ended(Recall outcome) { state_->recalls[Index(outcome)]->Increment(); }

void ArchiveMetrics::Adopted(Adoption outcome, int64_t sessions) {
  state_->adoptions[Index(outcome)]->Increment(static_cast<double>(sessions));
}

void ArchiveMetrics::TurnEnded(Unsaved why) { state_->unsaved[Index(why)]->Increment(); }

void ArchiveMetrics::TornJournals(int64_t journals) {
  state_->torn.Increment(static_cast<double>(journals));
}

struct JobMetrics::State {
  explicit State(MetricRegistry& r)
      : jobs(Series(r.Gauges("quire_jobs", "Jobs by state."), "state",
                    {"running", "completed", "cancelled", "failed"})),
        items(Series(r.Counters("quire_job_items_total", "Lines of jobs that ended, by status."),
                     "status", {"answered", "failed", "retried"})),
        lines(r.OneGauge("quire_job_lines_running", "Lines of jobs that run or wait.")),
        bytes(r.OneGauge("quire_job_bytes", "Bytes of the files of jobs.")) {}

  const std::vector<Gauge*> jobs;
  const std::vector<Counter*> items;
  Gauge& lines;
  Gauge& bytes;
};

JobMetrics::JobMetrics(MetricRegistry& registry) : state_(std::make_unique<State>(registry)) {}

JobMetrics::~JobMetrics() = default;

void JobMetrics::SetJobs(const std::array<int64_t, kNumPhases>& by_phase) {
  for (size_t i = 0; i < kNumPhases; ++i) state_->jobs[i]->Set(static_cast<double>(by_phase[i]));
}

void JobMetrics::SetLines(int64_t with_engine) {
  state_->lines.Set(static_cast<double>(with_engine));
}

void JobMetrics::SetBytes(int64_t bytes) { state_->bytes.Set(static_cast<double>(bytes)); }

void JobMetrics::Ended(Item item) { state_->items[Index(item)]->Increment(); }

}  // namespace quire
