// JobRunner: all jobs and the thread that owns them: it writes their files, starts their lines
// while requests leave room (job_room.h), and writes each result before it counts.
//
// The disk decides: a line is done once its result is there, whole. So a server that
// takes the folder over after a crash runs the lines that have none, and no others. A disk that is
// full or broken ends the job that met it, and disturbs nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/jobs/job_files.h"
#include "server/metrics/archive_metrics.h"
#include "server/session/archive/deadline_thread.h"

namespace quire {

struct GenerateResources;

class JobRunner {
 public:
  struct Limits {
    int64_t max_bytes = 0;  // of all files of jobs
    size_t max_jobs = 1000;
    uint64_t max_lines = 100'000;  // of a job
  };
  // Bytes and jobs of one tenant, as a part of those of all.
  static constexpr int kTenantPart = 2;  // a half

  // Reads the jobs in the folder of `disk`. `metrics` outlives this.
  static absl::StatusOr<std::unique_ptr<JobRunner>> Open(const Limits& limits, JobMetrics* metrics,
                                                         std::shared_ptr<Disk> disk);
  ~JobRunner();  // as Stop

  // From now on lines run. `resources` live until Stop.
  void Start(const GenerateResources* resources);
  // Ends the lines under way, without a result, and the thread. Idempotent.
  void Stop();
  // Runs `job` on the jobs thread. Any thread; never blocks.
  void Post(std::function<void()> job);
  // The same at this time of the steady clock.
  void PostAt(int64_t time_ns, std::function<void()> job);

  // --- The jobs thread's.
  // Null: the tenant has no such job, or there is none of this number.
  Job* Find(TenantId tenant, const std::string& id);
  Job* Find(uint64_t number);
  std::vector<Job*> Of(TenantId tenant);
  // Ends a job that has not ended.
  absl::Status Cancel(Job& job);
  absl::Status Remove(Job& job);
  JobFiles& files() { return files_; }

  // An upload: OK if the tenant may have another job of this name; then the name is taken, and
  // EndUpload follows.
  absl::StatusOr<uint64_t> BeginUpload(const JobState& state);
  // RESOURCE_EXHAUSTED if the tenant may not have so many bytes more.
  absl::Status TakeBytes(TenantId tenant, int64_t bytes);
  // The input is whole, or, with nullptr, nothing is left of the upload. `bytes`: that were taken.
  absl::StatusOr<Job*> EndUpload(uint64_t number, const JobState& state, bool whole, int64_t bytes);
  const Limits& limits() const { return limits_; }

 private:
  using Key = std::pair<TenantId, std::string>;

  JobRunner(const Limits& limits, JobMetrics* metrics, std::shared_ptr<Disk> disk)
      : limits_(limits), metrics_(*metrics), files_(std::move(disk)) {}

  void Adopt(JobFolder folder);
  void Look();
  void Expire();
  void StartLines();
  Job* NextJob();
  std::map<TenantId, size_t> LinesByTenant() const;
  bool StartLine(Job& job);
  absl::StatusOr<std::optional<InputLine>> NextLine(Job& job);
  void Run(Job& job, InputLine text, RequestLine line);
  void LineEnded(uint64_t number, uint32_t line, const absl::StatusOr<std::string>& result);
  void PutBack(Job& job, InputLine text, bool pause);
  void Record(Job& job, const RequestLine& line, const absl::StatusOr<std::string>& result);
  absl::Status Append(Job& job, const JobRecord& record);
  void EndJob(Job& job, JobPhase phase, const std::string& failure);
  void CancelLines(Job& job);
  void Tell(Job& job);
  void ShowUse();
  int64_t BytesOf(TenantId tenant) const;
  void GiveBackBytes(TenantId tenant, int64_t bytes);

  const Limits limits_;
  JobMetrics& metrics_;
  JobFiles files_;
  std::atomic<bool> stopping_{false};
  // The jobs thread's.
  const GenerateResources* resources_ = nullptr;  // null: no line runs
  uint64_t next_number_ = 1;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;
  std::map<Key, uint64_t> names_;                          // of jobs and of uploads
  std::map<TenantId, int64_t> upload_bytes_;               // that are no job's yet
  std::map<uint64_t, std::shared_ptr<ReplyRun>> orphans_;  // of jobs that are gone
  size_t with_engine_ = 0;                                 // lines
  uint64_t turns_ = 0;
  bool looking_ = false;  // a look is due
  DeadlineThread thread_;
};

}  // namespace quire
