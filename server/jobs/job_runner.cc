// Everything here runs on the jobs thread, Post, Start and Stop aside.
#include "server/jobs/job_runner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sequence.h"
#include "server/answers/reply_run.h"
#include "server/call/status_codec.h"
#include "server/generate/generate_resources.h"
#include "server/jobs/job_codec.h"
#include "server/jobs/job_line.h"
#include "server/jobs/job_room.h"

namespace quire {
namespace {

// Between two looks, while lines wait for room, and while jobs wait for their expiry.
constexpr int64_t kLookNs = 5'000'000;
constexpr int64_t kExpiryLookNs = 1'000'000'000;
// After a line was refused for now, its job waits, twice as long each time.
constexpr int64_t kFirstPauseNs = 100'000'000;
constexpr int64_t kLongestPauseNs = 5'000'000'000;
// Of a result's message beside its JSON.
constexpr int64_t kFrameBytes = 1024;

// The server refused the line for now, or was ending: the line itself is not at fault.
bool IsForNow(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return true;
  const std::string reason = ReasonOf(status);
  return reason == "TENANT_LIMIT" || reason == "CANCELLED";
}

absl::Status Limit(const std::string& message) {
  return Refusal(absl::StatusCode::kResourceExhausted, "JOB_LIMIT", message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobRunner>> JobRunner::Open(const Limits& limits,
                                                           JobMetrics* metrics,
                                                           std::shared_ptr<Disk> disk) {
  std::unique_ptr<JobRunner> runner(new JobRunner(limits, metrics, std::move(disk)));
  ASSIGN_OR_RETURN(JobFolder folder, runner->files_.ReadFolder());
  runner->Adopt(std::move(folder));
  return runner;
}

JobRunner::~JobRunner() { Stop(); }

void JobRunner::Adopt(JobFolder folder) {
  next_number_ = folder.next_number;
  for (LeftJob& left : folder.jobs) {
    auto job = std::make_unique<Job>();
    job->number = left.number;
    job->state = std::move(left.state);
    job->done = std::move(left.done);
    job->done_lines = left.done_lines;
    job->failed_lines = left.failed_lines;
    job->result_bytes = left.result_bytes;
    names_[{job->state.caller.tenant, job->state.id}] = job->number;
    Log(Severity::kInfo, "job taken over",
        {{"job", job->state.id},
         {"tenant", job->state.caller.tenant_name},
         {"state", Name(job->state.phase)},
         {"lines", job->state.lines},
         {"done", job->done_lines},
         {"torn", left.torn}});
    jobs_[job->number] = std::move(job);
  }
  ShowUse();
}

void JobRunner::Start(const GenerateResources* resources) {
  Post([this, resources] {
    resources_ = resources;
    for (auto& [number, job] : jobs_) {
      // Its server ended between the last result and the state.
      if (!job->ended() && job->done_lines == job->state.lines) {
        EndJob(*job, JobPhase::kCompleted, "");
      }
    }
    Look();
  });
}

void JobRunner::Stop() {
  if (stopping_.exchange(true)) return;
  Post([this] {
    for (auto& [number, job] : jobs_) {
      for (auto& [line, running] : job->running) running.run->Cancel();
    }
  });
  thread_.Stop();
  // Lines that have not ended by now are given up, and run again in the next server.
  for (auto& [number, job] : jobs_) {
    for (auto& [line, running] : job->running) running.run->Release();
    job->running.clear();
  }
  for (auto& [key, run] : orphans_) run->Release();
  orphans_.clear();
}

void JobRunner::Post(std::function<void()> job) { PostAt(SteadyNowNs(), std::move(job)); }

void JobRunner::PostAt(int64_t time_ns, std::function<void()> job) {
  thread_.At(time_ns, std::move(job));
}

// --- Jobs.

Job* JobRunner::Find(TenantId tenant, const std::string& id) {
  const auto name = names_.find({tenant, id});
  return name == names_.end() ? nullptr : Find(name->second);
}

Job* JobRunner::Find(uint64_t number) {
  const auto job = jobs_.find(number);
  return job == jobs_.end() ? nullptr : job->second.get();
}

std::vector<Job*> JobRunner::Of(TenantId tenant) {
  std::vector<Job*> found;
  for (auto& [number, job] : jobs_) {
    if (job->state.caller.tenant == tenant) found.push_back(job.get());
  }
  return found;
}

absl::Status JobRunner::Cancel(Job& job) {
  if (job.ended()) return absl::OkStatus();
  JobState cancelled = job.state;
  cancelled.phase = JobPhase::kCancelled;
  cancelled.ended_ns = JobClockNs();
  RETURN_IF_ERROR(files_.WriteState(job.number, cancelled));
  EndJob(job, JobPhase::kCancelled, "");
  return absl::OkStatus();
}

absl::Status JobRunner::Remove(Job& job) {
  const uint64_t number = job.number;
  // A reader of results hears of the end when the job is gone: those that it has are not all.
  std::vector<JobWatcher*> watchers = std::exchange(job.watchers, {});
  if (!job.ended()) EndJob(job, JobPhase::kCancelled, "");
  const absl::Status removed = files_.Remove(number);
  if (!removed.ok()) {
    job.watchers = watchers;
    for (JobWatcher* watcher : watchers) watcher->JobChanged();
    return removed;
  }
  for (auto& [line, running] : job.running) orphans_[number << 32 | line] = running.run;
  names_.erase({job.state.caller.tenant, job.state.id});
  jobs_.erase(number);
  for (JobWatcher* watcher : watchers) watcher->JobChanged();
  ShowUse();
  return absl::OkStatus();
}

void JobRunner::EndJob(Job& job, JobPhase phase, const std::string& failure) {
  job.state.phase = phase;
  job.state.failure = failure;
  job.state.ended_ns = JobClockNs();
  CancelLines(job);
  job.again.clear();
  job.reader.reset();
  const absl::Status written = files_.WriteState(job.number, job.state);
  job.results.reset();
  const auto severity =
      phase == JobPhase::kFailed || !written.ok() ? Severity::kWarning : Severity::kInfo;
  Log(severity, "job ended",
      {{"job", job.state.id},
       {"tenant", job.state.caller.tenant_name},
       {"key", job.state.caller.key_id},
       {"state", Name(phase)},
       {"lines", job.state.lines},
       {"done", job.done_lines},
       {"failed", job.failed_lines},
       {"result_bytes", job.result_bytes},
       {"seconds", static_cast<double>(job.state.ended_ns - job.state.created_ns) * 1e-9},
       {"failure", failure}});
  Tell(job);
  ShowUse();
}

void JobRunner::CancelLines(Job& job) {
  for (auto& [line, running] : job.running) running.run->Cancel();
}

void JobRunner::Tell(Job& job) {
  const std::vector<JobWatcher*> watchers = job.watchers;  // they may leave
  for (JobWatcher* watcher : watchers) watcher->JobChanged();
}

void JobRunner::ShowUse() {
  std::array<int64_t, JobMetrics::kNumPhases> by_phase{};
  int64_t bytes = 0;
  for (const auto& [number, job] : jobs_) {
    ++by_phase[static_cast<size_t>(job->state.phase) - 1];
    bytes += job->state.input_bytes + job->result_bytes;
  }
  metrics_.SetJobs(by_phase);
  metrics_.SetBytes(bytes);
  metrics_.SetLines(static_cast<int64_t>(with_engine_));
}

// --- Uploads.

absl::StatusOr<uint64_t> JobRunner::BeginUpload(const JobState& state) {
  const TenantId tenant = state.caller.tenant;
  if (names_.contains({tenant, state.id})) {
    return Refusal(absl::StatusCode::kAlreadyExists, "JOB_EXISTS",
                   "job_id: there is a job '" + state.id + "'; delete it, or choose another name");
  }
  const auto mine = static_cast<size_t>(std::ranges::count_if(
      names_, [tenant](const auto& name) { return name.first.first == tenant; }));
  if (names_.size() >= limits_.max_jobs || mine >= limits_.max_jobs / kTenantPart) {
    return Limit("there are " + std::to_string(mine) + " jobs of this tenant and " +
                 std::to_string(names_.size()) + " in all; at most " +
                 std::to_string(limits_.max_jobs / kTenantPart) + " and " +
                 std::to_string(limits_.max_jobs) + " are kept: delete some");
  }
  names_[{tenant, state.id}] = next_number_;
  return next_number_++;
}

int64_t JobRunner::BytesOf(TenantId tenant) const {
  const auto upload = upload_bytes_.find(tenant);
  int64_t bytes = upload == upload_bytes_.end() ? 0 : upload->second;
  for (const auto& [number, job] : jobs_) {
    if (job->state.caller.tenant == tenant) bytes += job->state.input_bytes + job->result_bytes;
  }
  return bytes;
}

absl::Status JobRunner::TakeBytes(TenantId tenant, int64_t bytes) {
  int64_t all = 0;
  for (const auto& [number, job] : jobs_) all += job->state.input_bytes + job->result_bytes;
  for (const auto& [each, taken] : upload_bytes_) all += taken;
  const int64_t mine = BytesOf(tenant);
  if (all + bytes > limits_.max_bytes || mine + bytes > limits_.max_bytes / kTenantPart) {
    return Limit("the jobs of this tenant have " + std::to_string(mine) + " bytes, all jobs " +
                 std::to_string(all) + "; at most " +
                 std::to_string(limits_.max_bytes / kTenantPart) + " and " +
                 std::to_string(limits_.max_bytes) + " are kept (--job-size): delete some");
  }
  upload_bytes_[tenant] += bytes;
  return absl::OkStatus();
}

void JobRunner::GiveBackBytes(TenantId tenant, int64_t bytes) {
  const auto taken = upload_bytes_.find(tenant);
  if (taken == upload_bytes_.end()) return;
  taken->second -= bytes;
  if (taken->second == 0) upload_bytes_.erase(taken);
}

absl::StatusOr<Job*> JobRunner::EndUpload(uint64_t number, const JobState& state, bool whole,
                                          int64_t bytes) {
  const TenantId tenant = state.caller.tenant;
  GiveBackBytes(tenant, bytes);
  const absl::Status written =
      whole ? files_.WriteState(number, state) : absl::CancelledError("the upload was not ended");
  if (!written.ok()) {
    names_.erase({tenant, state.id});
    files_.Remove(number).IgnoreError();
    return written;
  }
  auto job = std::make_unique<Job>();
  job->number = number;
  job->state = state;
  Job* const made = job.get();
  jobs_[number] = std::move(job);
  Log(Severity::kInfo, "job created",
      {{"job", state.id},
       {"tenant", state.caller.tenant_name},
       {"key", state.caller.key_id},
       {"lines", state.lines},
       {"input_bytes", state.input_bytes}});
  if (state.lines == 0) EndJob(*made, JobPhase::kCompleted, "");
  ShowUse();
  Look();
  return made;
}

// --- Lines.

void JobRunner::Look() {
  if (stopping_ || resources_ == nullptr) return;
  Expire();
  StartLines();
  metrics_.SetLines(static_cast<int64_t>(with_engine_));
  if (jobs_.empty() || std::exchange(looking_, true)) return;
  const bool wants =
      std::ranges::any_of(jobs_, [](const auto& job) { return job.second->wants(); });
  thread_.At(SteadyNowNs() + (wants ? kLookNs : kExpiryLookNs), [this] {
    looking_ = false;
    Look();
  });
}

void JobRunner::Expire() {
  const int64_t now_ns = JobClockNs();
  std::vector<Job*> expired;
  for (auto& [number, job] : jobs_) {
    if (job->state.expires_ns() <= now_ns) expired.push_back(job.get());
  }
  for (Job* job : expired) {
    Log(Severity::kInfo, "job expired", {{"job", job->state.id}});
    Remove(*job).IgnoreError();  // one that stays is found again in the next look
  }
}

void JobRunner::StartLines() {
  if (resources_->drain.draining()) {
    // The lines run again, here or in the next server; they should not hold the drain up.
    for (auto& [number, job] : jobs_) CancelLines(*job);
    return;
  }
  const SchedulerLoad load = resources_->engine.Stats().load;
  const JobRoom room{.rows = resources_->model.setup.config.max_num_seqs,
                     .running = load.running,
                     .waiting = load.waiting,
                     .lines = static_cast<int32_t>(with_engine_)};
  for (int32_t left = room.ToStart(); left > 0;) {
    Job* const job = NextJob();
    if (job == nullptr) return;
    left -= StartLine(*job);
  }
}

std::map<TenantId, size_t> JobRunner::LinesByTenant() const {
  std::map<TenantId, size_t> lines;
  for (const auto& [number, job] : jobs_) lines[job->state.caller.tenant] += job->running.size();
  return lines;
}

// Of the tenant with the fewest lines under way the job that has waited longest.
Job* JobRunner::NextJob() {
  const int64_t now_ns = SteadyNowNs();
  std::map<TenantId, size_t> lines = LinesByTenant();
  Job* best = nullptr;
  for (auto& [number, job] : jobs_) {
    if (!job->wants() || job->not_before_ns > now_ns) continue;
    if (best == nullptr) best = job.get();
    const size_t of_job = lines[job->state.caller.tenant];
    const size_t of_best = lines[best->state.caller.tenant];
    if (of_job < of_best || (of_job == of_best && job->turn < best->turn)) best = job.get();
  }
  return best;
}

// True if a line went to the engine.
bool JobRunner::StartLine(Job& job) {
  job.turn = ++turns_;
  absl::StatusOr<std::optional<InputLine>> text = NextLine(job);
  if (!text.ok()) {
    EndJob(job, JobPhase::kFailed,
           "the input cannot be read: " + std::string(text.status().message()));
    return false;
  }
  if (!text->has_value()) {
    job.read_all = true;
    return false;
  }
  RequestLine line;
  const absl::Status read = ReadJobLine(**text, &line);
  if (!read.ok()) {
    Record(job, line, read);
    return false;
  }
  Run(job, *std::move(*text), std::move(line));
  return true;
}

absl::StatusOr<std::optional<InputLine>> JobRunner::NextLine(Job& job) {
  if (!job.again.empty()) {
    InputLine line = std::move(job.again.front());
    job.again.pop_front();
    return line;
  }
  if (!job.reader.has_value()) {
    ASSIGN_OR_RETURN(LineReader reader, files_.OpenInput(job.number, job.state));
    job.reader.emplace(std::move(reader));
  }
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<InputLine> line, job.reader->Next());
    if (!line.has_value() || !job.IsDone(line->number)) return line;
  }
}

void JobRunner::Run(Job& job, InputLine text, RequestLine line) {
  if (!line.request.has_request_id()) {
    const std::string id = job.state.id + ":" + std::to_string(line.number);
    if (id.size() <= 128) line.request.set_request_id(id);
  }
  const uint32_t number = line.number;
  ReplyRun::Options options;
  options.origin.caller = std::make_shared<const Caller>(job.state.caller);
  options.done = [this, job = job.number, number](absl::StatusOr<std::string> result) {
    Post([this, job, number, result = std::move(result)] { LineEnded(job, number, result); });
  };
  options.adjust = [priority = job.state.priority](Request& request) {
    request.priority = priority.value_or(kBackgroundPriority);
  };
  const auto run = std::make_shared<ReplyRun>(resources_, std::move(options));
  ++with_engine_;
  const v1::GenerateRequest request = line.request;
  job.running[number] = {std::move(text), std::move(line), run};
  run->Start(request);
}

void JobRunner::LineEnded(uint64_t number, uint32_t line,
                          const absl::StatusOr<std::string>& result) {
  --with_engine_;
  if (const auto orphan = orphans_.find(number << 32 | line); orphan != orphans_.end()) {
    orphan->second->Release();
    orphans_.erase(orphan);
    return;
  }
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  Job& job = *found->second;
  const auto at = job.running.find(line);
  Job::Running ended = std::move(at->second);
  job.running.erase(at);
  ended.run->Release();
  if (stopping_ || job.ended()) return;
  if (!result.ok() && IsForNow(result.status())) {
    PutBack(job, std::move(ended.text), /*pause=*/ReasonOf(result.status()) != "CANCELLED");
  } else {
    job.pause_ns = 0;
    Record(job, ended.line, result);
  }
  Look();
}

void JobRunner::PutBack(Job& job, InputLine text, bool pause) {
  metrics_.Ended(JobMetrics::Item::kRetried);
  job.again.push_back(std::move(text));
  if (!pause) return;
  job.pause_ns = std::clamp(2 * job.pause_ns, kFirstPauseNs, kLongestPauseNs);
  job.not_before_ns = SteadyNowNs() + job.pause_ns;
}

void JobRunner::Record(Job& job, const RequestLine& line,
                       const absl::StatusOr<std::string>& result) {
  LineResult written = WriteLineResult(line, result, resources_->model.tokenizer.get(),
                                       resources_->calls.options.max_reply_bytes - kFrameBytes);
  const JobRecord record{
      .line = line.number, .failed = !written.status.ok(), .json = std::move(written.json)};
  if (const absl::Status status = Append(job, record); !status.ok()) {
    return EndJob(job, JobPhase::kFailed,
                  "a result cannot be written: " + std::string(status.message()));
  }
  if (job.done.size() <= line.number) job.done.resize(line.number + size_t{1});
  job.done[line.number] = true;
  ++job.done_lines;
  job.failed_lines += record.failed;
  metrics_.Ended(record.failed ? JobMetrics::Item::kFailed : JobMetrics::Item::kAnswered);
  if (job.done_lines == job.state.lines) return EndJob(job, JobPhase::kCompleted, "");
  Tell(job);
}

// A failed write may leave a torn record: the next server cuts it off, and no reader gets there.
absl::Status JobRunner::Append(Job& job, const JobRecord& record) {
  const std::string bytes = EncodeJobRecord(record, job.result_bytes);
  const auto size = static_cast<int64_t>(bytes.size());
  RETURN_IF_ERROR(TakeBytes(job.state.caller.tenant, size));
  GiveBackBytes(job.state.caller.tenant, size);  // they count as the job's once they are written
  if (job.results == nullptr) {
    ASSIGN_OR_RETURN(job.results, files_.OpenResults(job.number, job.result_bytes == 0));
  }
  RETURN_IF_ERROR(AppendAll(*job.results, bytes));
  job.result_bytes += size;
  return absl::OkStatus();
}

}  // namespace quire
