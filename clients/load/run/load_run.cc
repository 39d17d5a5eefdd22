// The phases of a run, and the work of each thread in them.
#include "clients/load/run/load_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/load/run/health.h"
#include "clients/load/workload/arrivals.h"

namespace quire::load {
namespace {

// Requests prepared ahead: enough for the planner to pause, few enough to hold in memory.
constexpr int64_t kMostUnsent = 4096;
constexpr int64_t kMostUnsentTokens = 16 << 20;
// Between the planner's start and the first request.
constexpr int64_t kHeadStartNs = 100'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int32_t kWarmupsAtOnce = 8;
// Streams in a row that ended without a status from the server before a new connection is tried.
constexpr int32_t kSilentBeforeProbe = 10;
// In RequestRecord::index: prepared for a closed loop whose time was over; left out.
constexpr uint64_t kDropped = ~uint64_t{0};

}  // namespace

LoadRun::LoadRun(const Settings& settings, Workload* workload, Target* target)
    : settings_(settings), workload_(workload), target_(target), scraper_(settings.metrics) {
  run_.base_ns = NowNs() - 1;  // so that no time is 0
  run_.endpoint = &settings_.endpoint;
  run_.detailed = settings.detailed;
  run_.token_ids = settings.workload.token_ids;
  run_.slow_delay_seconds = settings.workload.slow_delay_seconds;
  run_.tally = &tally_;
  run_.ends = this;
  if (!settings.workload.session_prefix.empty()) {
    sessions_ = std::make_unique<SessionCalls>(target->MakeSessionsStub(), settings_.endpoint);
  }
}

RunRecord LoadRun::Execute(std::stop_token stop, std::ostream* out) {
  const int64_t planned = workload_->size();
  Progress progress(settings_.progress, planned == Workload::kEndless ? 0 : planned, out);
  progress_ = &progress;
  if (settings_.workload.num_warmups > 0) RunPhase(MakePhase(/*warmup=*/true), stop);
  if (end_ == RunEnd::kCompleted) {
    last_totals_ = tally_.Read();
    tally_.TakeTtfts();
    const double cpu_before = UsedSoFar().cpu_seconds;
    const int64_t before = NowNs();
    RunPhase(MakePhase(/*warmup=*/false), stop);
    cpu_seconds_ = UsedSoFar().cpu_seconds - cpu_before;
    wall_seconds_ = 1e-9 * static_cast<double>(NowNs() - before);
  }
  progress.End();
  return Finish();
}

LoadRun::Phase LoadRun::MakePhase(bool warmup) const {
  Phase phase;
  phase.warmup = warmup;
  phase.count = warmup ? settings_.workload.num_warmups : workload_->size();
  phase.start_ns = Now() + kHeadStartNs;
  phase.closed = warmup || IsClosedLoop(settings_.arrival);
  if (!warmup && settings_.workload.duration_seconds > 0) {
    phase.plan_until_ns =
        phase.start_ns + static_cast<int64_t>(settings_.workload.duration_seconds * 1e9);
  }
  return phase;
}

SendQueue LoadRun::MakeQueue(const Phase& phase) const {
  const ArrivalSettings& arrival = settings_.arrival;
  if (phase.warmup) return SendQueue(std::vector<int64_t>(kWarmupsAtOnce, phase.start_ns));
  if (arrival.max_concurrency == 0) return SendQueue();
  std::vector<int64_t> free_ns;
  for (int32_t i = 0; i < arrival.max_concurrency; ++i) {
    const double share = static_cast<double>(i) / arrival.max_concurrency;
    free_ns.push_back(phase.start_ns +
                      static_cast<int64_t>(share * arrival.concurrency_ramp_seconds * 1e9));
  }
  return SendQueue(free_ns);
}

void LoadRun::RunPhase(const Phase& phase, std::stop_token stop) {
  {
    std::lock_guard lock(mutex_);
    phase_ = phase;
    next_ = 0;
  }
  pacer_ = std::make_unique<Pacer>(MakeQueue(phase), run_.base_ns,
                                   [this](EligibleSend eligible) { Send(std::move(eligible)); });
  std::thread planner([this] { Plan(); });
  Watch(stop);
  planner.join();
  pacer_->Stop();
  if (sessions_ != nullptr) sessions_->Wait();
  if (run_.silent_in_a_row.load() > 0 && end_ == RunEnd::kCompleted) CheckServer();
}

void LoadRun::Watch(std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    std::lock_guard lock(mutex_);
    watcher_wakes_.notify_all();
  });
  int64_t tick_ns = phase_.start_ns + kSecondNs;
  const int64_t limit_ns =
      settings_.time_limit_seconds > 0
          ? phase_.start_ns + static_cast<int64_t>(settings_.time_limit_seconds * 1e9)
          : SendQueue::kNever;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const int64_t next_ns = end_ == RunEnd::kCompleted ? std::min(tick_ns, limit_ns) : tick_ns;
      const auto until =
          std::chrono::steady_clock::time_point(std::chrono::nanoseconds(run_.base_ns + next_ns));
      watcher_wakes_.wait_until(lock, until, [&] {
        return AllDone() || (stop.stop_requested() && end_ == RunEnd::kCompleted);
      });
      if (AllDone()) break;
    }
    const int64_t now_ns = Now();
    if (now_ns >= tick_ns) {
      Tick(now_ns);
      tick_ns += kSecondNs;
    }
    if (end_ != RunEnd::kCompleted) continue;
    if (stop.stop_requested()) {
      End(RunEnd::kInterrupted, "interrupted before all requests had ended");
    } else if (now_ns >= limit_ns) {
      End(RunEnd::kTimeLimit, absl::StrCat("the time limit of ", settings_.time_limit_seconds,
                                           " s passed before all requests had ended"));
    } else if (run_.silent_in_a_row.load() >= kSilentBeforeProbe) {
      CheckServer();
    }
  }
  if (!phase_.warmup) Tick(Now());
}

void LoadRun::Tick(int64_t now_ns) {
  if (phase_.warmup) return;
  const Tally::Totals totals = tally_.Read();
  const ScrapedGauges gauges = scraper_.latest();
  TimelinePoint point;
  point.seconds = 1e-9 * static_cast<double>(now_ns);
  point.in_flight = static_cast<int32_t>(totals.sent - totals.ended);
  point.sent = static_cast<int32_t>(totals.sent - last_totals_.sent);
  point.finished = static_cast<int32_t>(totals.ended - last_totals_.ended);
  point.failed = static_cast<int32_t>(totals.failed - last_totals_.failed);
  point.tokens = totals.tokens - last_totals_.tokens;
  point.kv_usage = gauges.kv_usage;
  point.running = gauges.running;
  point.waiting = gauges.waiting;
  timeline_.push_back(point);
  last_totals_ = totals;
  progress_->Tick(1e-9 * static_cast<double>(now_ns - phase_.start_ns), totals, tally_.TakeTtfts());
}

// Many streams can end at once with their connection, so a new connection decides.
void LoadRun::CheckServer() {
  if (target_->Answers()) {
    run_.silent_in_a_row.store(0);
    return;
  }
  End(RunEnd::kServerLost,
      absl::StrCat("the server at ", settings_.endpoint.server,
                   " was lost: ", run_.silent_in_a_row.load(),
                   " streams in a row ended without a word from it, and a fresh connection got no "
                   "answer"));
}

void LoadRun::End(RunEnd end, const std::string& reason) {
  end_ = end;
  end_reason_ = reason;
  run_.ending.store(true);
  const std::vector<DueSend> unsent = pacer_->Stop();
  std::vector<std::shared_ptr<Stream>> live;
  {
    std::lock_guard lock(mutex_);
    outstanding_ -= static_cast<int64_t>(unsent.size());
    for (const DueSend& send : unsent) live_.erase(send.stream);
    live.assign(live_.begin(), live_.end());
    planner_wakes_.notify_all();
  }
  for (const auto& stream : live) stream->Cancel();
  // Cancelled streams close their sessions as they end.
  for (const DueSend& send : unsent) CloseUnsent(send.stream->plan());
}

bool LoadRun::AllDone() const {
  if (outstanding_ > 0) return false;
  return run_.ending.load() || next_ >= phase_.count;
}

void LoadRun::LeaveOutstanding() {
  if (--outstanding_ > 0) return;
  planner_wakes_.notify_one();
  watcher_wakes_.notify_all();
}

bool LoadRun::MayPlanNext() const {
  return next_ < phase_.count && unsent_ < kMostUnsent &&
         (unsent_ == 0 || unsent_tokens_ < kMostUnsentTokens);
}

void LoadRun::Plan() {
  std::unique_lock lock(mutex_);
  for (;;) {
    planner_wakes_.wait(lock, [this] {
      return !ended_turns_.empty() || MayPlanNext() || AllDone() || run_.ending.load();
    });
    if (!ended_turns_.empty()) {
      const std::shared_ptr<Stream> ended = std::move(ended_turns_.front());
      ended_turns_.pop_front();
      lock.unlock();
      PlanTurnsAfter(ended);
      lock.lock();
    } else if (run_.ending.load() || AllDone()) {
      return;
    } else {
      lock.unlock();
      PlanNext();
      lock.lock();
    }
  }
}

void LoadRun::PlanNext() {
  PlannedRequest request = phase_.warmup ? workload_->Warmup(next_) : workload_->Request(next_);
  request.due_ns = phase_.closed ? 0 : phase_.start_ns + request.due_ns;
  {
    std::lock_guard lock(mutex_);
    ++next_;
    ++unsent_;
    unsent_tokens_ += static_cast<int64_t>(request.token_ids.size());
    if (request.conversation >= 0) family_turns_[request.family] = 1;
  }
  Enqueue(std::move(request));
}

void LoadRun::PlanTurnsAfter(const std::shared_ptr<Stream>& ended) {
  std::vector<PlannedRequest> next =
      workload_->NextTurns(ended->plan(), ended->tokens(), ended->record().end_ns);
  std::erase_if(next, [this](const PlannedRequest& turn) {
    return run_.ending.load() || turn.due_ns > phase_.plan_until_ns;
  });
  const auto fork = std::find_if(next.begin(), next.end(),
                                 [](const PlannedRequest& turn) { return !turn.fork_of.empty(); });
  if (fork == next.end()) return GoOn(*ended, std::move(next));
  // Before either branch adds to the session that both begin with.
  SessionFork wanted{fork->fork_of, fork->session, fork->position};
  sessions_->Fork(wanted, [this, ended, turns = std::move(next)] { GoOn(*ended, turns); });
}

void LoadRun::GoOn(const Stream& ended, std::vector<PlannedRequest> turns) {
  if (run_.ending.load()) turns.clear();
  const std::string& session = ended.plan().session;
  const bool goes_on = std::any_of(turns.begin(), turns.end(), [&](const PlannedRequest& turn) {
    return turn.session == session;
  });
  if (!goes_on && sessions_ != nullptr) sessions_->Close(session);
  LeaveFamily(ended.plan().family, static_cast<int32_t>(turns.size()));
  for (PlannedRequest& turn : turns) Enqueue(std::move(turn));
  std::lock_guard lock(mutex_);
  LeaveOutstanding();
}

void LoadRun::Enqueue(PlannedRequest request) {
  v1::GenerateRequest message = ToMessage(request, settings_.workload, target_->model().name);
  RequestRecord* record = nullptr;
  {
    std::lock_guard lock(mutex_);
    record = &records_.emplace_back();
    ++outstanding_;
  }
  record->conversation = request.conversation;
  record->turn = request.turn;
  record->priority = request.priority;
  record->warmup = request.warmup;
  record->slow_reader = request.slow_reader;
  record->planned_ns = request.due_ns;
  record->prompt_tokens = request.position + static_cast<int32_t>(request.token_ids.size());
  record->requested_tokens = request.max_tokens;
  DueSend send;
  send.due_ns = request.due_ns;
  send.takes_slot = request.turn == 0;
  const bool keep_tokens = request.turn + 1 < request.turns;
  send.stream =
      std::make_shared<Stream>(std::move(request), std::move(message), record, &run_, keep_tokens);
  const std::shared_ptr<Stream> stream = send.stream;
  {
    std::lock_guard lock(mutex_);
    live_.insert(stream);
  }
  if (pacer_->Add(std::move(send))) return;
  CloseUnsent(stream->plan());
  std::lock_guard lock(mutex_);
  live_.erase(stream);
  LeaveOutstanding();
}

// Closes the session of a later turn that is not sent.
void LoadRun::CloseUnsent(const PlannedRequest& plan) {
  if (plan.turn > 0 && !plan.session.empty()) sessions_->Close(plan.session);
}

// Starts the stream before it takes the run's mutex: a wait for it would make the request late.
void LoadRun::Send(EligibleSend eligible) {
  const std::shared_ptr<Stream>& stream = eligible.send.stream;
  RequestRecord& record = stream->record();
  const bool first_turn = stream->plan().turn == 0;
  const int64_t prompt_tokens =
      record.prompt_tokens;  // read now: the stream changes it once started
  if (!Drop(eligible)) {
    // A closed loop plans a request for the moment at which it has a slot.
    if (phase_.closed && first_turn) record.planned_ns = eligible.eligible_ns;
    stream->channel = target_->Join();
    // The requests that open a run are due all at once, which no client could send.
    const bool opening = eligible.eligible_ns == phase_.start_ns;
    const int64_t lag_ns = Now() - eligible.eligible_ns;
    if (!record.warmup && !opening) lags_.Add(1e-9 * static_cast<double>(lag_ns));
    stream->Start(target_->stub(stream->channel));
  }
  if (!first_turn) return;
  std::lock_guard lock(mutex_);
  --unsent_;
  unsent_tokens_ -= prompt_tokens;
  if (MayPlanNext()) planner_wakes_.notify_one();
}

// A closed loop's request that found no room before the time was over was never planned.
bool LoadRun::Drop(const EligibleSend& eligible) {
  if (!phase_.closed || eligible.eligible_ns <= phase_.plan_until_ns) return false;
  eligible.send.stream->record().index = kDropped;
  pacer_->Release();
  std::lock_guard lock(mutex_);
  phase_.count = next_;
  live_.erase(eligible.send.stream);
  LeaveOutstanding();
  return true;
}

void LoadRun::OnEnd(std::shared_ptr<Stream> stream) {
  target_->Leave(stream->channel);
  const PlannedRequest& plan = stream->plan();
  const bool goes_on =
      plan.turn + 1 < plan.turns && stream->record().outcome == Outcome::kOk && !run_.ending.load();
  if (!goes_on) LeaveFamily(plan.family, 0);
  if (!goes_on && !plan.session.empty()) sessions_->Close(plan.session);
  {
    std::lock_guard lock(mutex_);
    live_.erase(stream);
    if (goes_on) {
      ended_turns_.push_back(std::move(stream));
      planner_wakes_.notify_one();
      return;
    }
  }
  stream.reset();
  std::lock_guard lock(mutex_);
  LeaveOutstanding();
}

// One turn of a conversation has ended and `more` follow it; the last one's end frees the slot.
void LoadRun::LeaveFamily(int64_t family, int32_t more) {
  if (workload_->has_conversations() && !phase_.warmup) {
    std::lock_guard lock(mutex_);
    const auto found = family_turns_.find(family);
    found->second += more - 1;
    if (found->second > 0) return;
    family_turns_.erase(found);
  }
  pacer_->Release();
}

std::vector<RequestRecord> LoadRun::TakeRequests() {
  std::vector<RequestRecord> requests;
  requests.reserve(records_.size());
  for (RequestRecord& record : records_) {
    if (record.index != kDropped) requests.push_back(std::move(record));
  }
  // Requests that were planned and not prepared.
  const bool endless = phase_.count == Workload::kEndless;
  for (int64_t i = next_; !phase_.warmup && !endless && i < phase_.count; ++i) {
    RequestRecord& record = requests.emplace_back();
    record.planned_ns = phase_.closed ? 0 : phase_.start_ns + workload_->DueNs(i);
  }
  // A closed loop's requests that never had room come last.
  const auto planned = [](const RequestRecord& r) {
    return r.planned_ns == 0 ? SendQueue::kNever : r.planned_ns;
  };
  std::stable_sort(requests.begin(), requests.end(),
                   [&](const RequestRecord& a, const RequestRecord& b) {
                     return a.warmup != b.warmup ? a.warmup : planned(a) < planned(b);
                   });
  for (size_t i = 0; i < requests.size(); ++i) requests[i].index = i;
  return requests;
}

RunRecord LoadRun::Finish() {
  RunRecord run;
  run.end = end_;
  run.end_reason = end_reason_;
  run.requests = TakeRequests();
  int64_t first_sent = SendQueue::kNever, last_end = 0;
  for (const RequestRecord& request : run.requests) {
    if (request.warmup || request.sent_ns == 0) continue;
    first_sent = std::min(first_sent, request.sent_ns);
    last_end = std::max(last_end, request.end_ns);
  }
  run.duration_ns = std::max<int64_t>(0, last_end - first_sent);
  tally_.AddGapsTo(&run.gaps, &run.gaps_per_token);
  run.timeline = std::move(timeline_);
  const double lag_limit = LagLimit(run, IsClosedLoop(settings_.arrival));
  run.health =
      JudgeClient(lags_, lag_limit, {cpu_seconds_, UsedSoFar().peak_rss_bytes}, wall_seconds_);
  return run;
}

}  // namespace quire::load
