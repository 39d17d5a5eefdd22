// The scheduler thread: inbox -> timers -> retire -> copies done -> schedule -> publish -> copies
// to do -> deliver, asleep when there is nothing to do.
#include "engine/engine.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/base/timeline.h"
#include "engine/base/wake_event.h"
#include "engine/kv_event_log.h"
#include "engine/mask_exchange.h"
#include "engine/schedule/scheduler.h"
#include "engine/step_observer.h"
#include "engine/tenant_gate.h"
#include "engine/values/admission.h"
#include "engine/worker/transport.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Messages taken from the inbox in one turn of the loop, so that a flood of arrivals cannot hold up
// the running sequences' next step.
constexpr size_t kInboxPerTurn = 64;

// A session operation on its way to the scheduler thread.
struct SessionCall {
  SessionOperation operation;
  SessionCompletion done;
};

using FlushCall = std::pair<CacheFlush, Engine::FlushCompletion>;

// From any thread to the scheduler thread.
struct Message {
  enum class Kind : uint8_t {
    kAdd,
    kCancel,
    kCancelAll,
    kPause,
    kResume,
    kSession,
    kObserve,
    kView,
    kFlush,
    kTenants
  };

  Kind kind = Kind::kAdd;
  std::vector<std::unique_ptr<Request>> answers;  // kAdd: one or more
  RequestId id = 0;                               // kCancel, kPause, kResume
  FinishReason reason = FinishReason::kNone;      // kCancel, kCancelAll
  int32_t keep_output = kKeepAll;                 // kCancel
  std::unique_ptr<SessionCall> session;           // kSession
  SessionObserver* observer = nullptr;            // kObserve
  std::unique_ptr<Engine::ViewCompletion> view;   // kView
  std::unique_ptr<FlushCall> flush;               // kFlush
  std::unique_ptr<TenantTable> tenants;           // kTenants
};

// Counts of one turn of the loop, until they are added to the stats.
struct TurnCounts {
  int64_t taken_reqs = 0;
  int64_t taken_tokens = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;
  int64_t last_step_tokens = 0;
  int64_t last_step_ns = 0;
  int64_t steps_ns = 0;
  int64_t last_retired_ns = 0;
  uint64_t recoveries = 0;
  std::string fault;
};

SchedulerConfig WithLimits(SchedulerConfig config, const EngineLimits& limits) {
  config.max_num_queued_tokens = limits.max_num_queued_tokens;
  config.pages_arrive = true;
  return config;
}

}  // namespace

struct Engine::State {
  State(const SchedulerConfig& config, const EngineLimits& limits_in,
        std::unique_ptr<Transport> transport_in, OutputSink* sink_in,
        std::vector<int32_t> graph_sizes_in)
      : limits(limits_in),
        sink(sink_in),
        graph_sizes(std::move(graph_sizes_in)),
        gate(config, limits_in),
        transport(std::move(transport_in)),
        scheduler(WithLimits(config, limits_in)),
        kv_events(config.block_size, KvEventLogSize(), [this] { wake.Notify(); }),
        masks([this] { wake.Notify(); }) {
    for (const int32_t size : graph_sizes) graphs.push_back({.size = size});
    stats.graphs = graphs;
    transport->SetWake(&wake);
    PublishStats();
  }

  void Run();
  bool TakeMessages(bool stop);
  void Take(Message& message, bool stop);
  absl::Status CheckPrompt(const Request& request) const;
  void Add(std::vector<std::unique_ptr<Request>> answers, bool stop);
  bool ReadView();
  bool NoticeFault();
  bool RetireSteps();
  bool FinishCopies();
  bool StartCopies();
  void CountStep(const StepResult& result);
  bool StartStep();
  void EndEverything(const std::string& fault);
  void Deliver();
  void PublishStats();
  void Post(Message message);

  const EngineLimits limits;
  OutputSink* const sink;
  const std::vector<int32_t> graph_sizes;

  // Shared with submitting threads.
  WakeEvent wake;
  std::mutex inbox_mutex;
  std::vector<Message> inbox;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopping{false};
  TenantGate gate;
  // In the inbox; the stats have the scheduler's queue as of its last turn.
  std::atomic<int64_t> inbox_reqs{0}, inbox_tokens{0};
  std::atomic<int64_t> live{0};  // accepted and not finished
  std::atomic<int64_t> work_since_ns{0};
  mutable std::mutex stats_mutex;
  EngineStats stats;

  // Scheduler thread only.
  std::unique_ptr<Transport> transport;
  Scheduler scheduler;
  SchedulerEvents events;
  std::vector<Message> turn;  // taken from the inbox; [turn_next, end) still to do
  size_t turn_next = 0;
  std::vector<PublishedStep> published;  // one per step in flight, oldest first
  CopyJob copy;                          // the next to be sent
  std::vector<ViewCompletion> viewers;   // wait for the view under way
  SchedulerView view;                    // likewise
  int64_t view_ns = 0;                   // that its parts have taken
  StepSizes step_sizes;                  // of all retired steps
  StepObserver observer;
  TurnCounts counts;
  KvEventLog kv_events;          // its readers: any thread
  std::vector<GraphUse> graphs;  // of graph_sizes
  std::vector<TenantStats> tenant_changes;
  MaskExchange masks;
  bool recovering = false;
  bool faulted = false;  // for good
  std::thread thread;
};

Engine::Engine(const SchedulerConfig& config, const EngineLimits& limits,
               std::unique_ptr<Transport> transport, OutputSink* sink,
               std::vector<int32_t> graph_sizes)
    : state_(std::make_unique<State>(config, limits, std::move(transport), sink,
                                     std::move(graph_sizes))) {
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

Engine::~Engine() {
  StartDrain();
  CancelAll(FinishReason::kDraining);
  state_->stopping.store(true, std::memory_order_release);
  state_->wake.Notify();
  state_->thread.join();
}

// The part that needs no session: a turn's length is known when it is opened.
absl::Status Engine::State::CheckPrompt(const Request& request) const {
  RETURN_IF_ERROR(CheckTokenIds(request, limits.vocab_size));
  if (request.session_turn.has_value()) return absl::OkStatus();
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  CHECK_GT(prompt, 0);
  if (prompt >= limits.max_model_len) {
    return absl::InvalidArgumentError(
        "prompt has " + std::to_string(prompt) + " tokens; the context of " +
        std::to_string(limits.max_model_len) + " leaves no room for output");
  }
  if (scheduler.Fits(prompt, request.sampling.max_tokens)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "prompt and max_tokens together (" + std::to_string(prompt + request.sampling.max_tokens) +
      " tokens) need more KV cache than the server has; ask for fewer tokens");
}

absl::Status Engine::Submit(std::unique_ptr<Request> request, int64_t* predicted_ttft_ns) {
  std::vector<std::unique_ptr<Request>> one;
  one.push_back(std::move(request));
  return Submit(std::move(one), predicted_ttft_ns);
}

absl::Status Engine::Submit(std::vector<std::unique_ptr<Request>> answers,
                            int64_t* predicted_ttft_ns) {
  State& s = *state_;
  const Request& first = *answers.at(0);
  RETURN_IF_ERROR(s.CheckPrompt(first));
  if (s.draining.load()) return absl::UnavailableError("the server is draining");
  {
    std::lock_guard lock(s.stats_mutex);
    if (!s.stats.fault.empty())
      return absl::UnavailableError("the engine failed: " + s.stats.fault);
  }
  const auto num_answers = static_cast<int32_t>(answers.size());
  const int64_t prompt = static_cast<int64_t>(first.prompt.size());
  const int64_t now_ns = SteadyNowNs();
  int64_t predicted_ns = 0;
  RETURN_IF_ERROR(s.gate.Enter(first, prompt, now_ns, &predicted_ns, num_answers));
  if (predicted_ns > 0) predicted_ns += now_ns - first.arrival_ns;
  for (const auto& request : answers) request->predicted_ttft_ns = predicted_ns;
  if (predicted_ttft_ns != nullptr) *predicted_ttft_ns = predicted_ns;
  s.inbox_reqs.fetch_add(num_answers);
  s.inbox_tokens.fetch_add(prompt);
  // Set work_since_ns before live, so that readers never see one without the other.
  if (s.live.load() == 0) s.work_since_ns.store(SteadyNowNs());
  s.live.fetch_add(num_answers);
  s.Post({.answers = std::move(answers)});
  return absl::OkStatus();
}

absl::Status Engine::SetTenants(const TenantTable& table) {
  RETURN_IF_ERROR(ValidateTenantTable(table));
  state_->gate.SetTable(table);
  state_->Post({.kind = Message::Kind::kTenants, .tenants = std::make_unique<TenantTable>(table)});
  return absl::OkStatus();
}

void Engine::Cancel(RequestId id, FinishReason reason, int32_t keep_output) {
  CHECK_NE(id, 0u);
  state_->Post(
      {.kind = Message::Kind::kCancel, .id = id, .reason = reason, .keep_output = keep_output});
}

void Engine::CancelAll(FinishReason reason) {
  state_->Post({.kind = Message::Kind::kCancelAll, .reason = reason});
}

void Engine::SetPaused(RequestId id, bool paused) {
  state_->Post({.kind = paused ? Message::Kind::kPause : Message::Kind::kResume, .id = id});
}

void Engine::Run(SessionOperation operation, SessionCompletion done) {
  auto call = std::make_unique<SessionCall>(std::move(operation), std::move(done));
  state_->Post({.kind = Message::Kind::kSession, .session = std::move(call)});
}

void Engine::SetSessionObserver(SessionObserver* observer) {
  state_->Post({.kind = Message::Kind::kObserve, .observer = observer});
}

void Engine::View(ViewCompletion done) const {
  state_->Post(
      {.kind = Message::Kind::kView, .view = std::make_unique<ViewCompletion>(std::move(done))});
}

KvEventLog& Engine::kv_events() { return state_->kv_events; }

void Engine::FlushCache(const CacheFlush& flush, FlushCompletion done) {
  auto call = std::make_unique<FlushCall>(flush, std::move(done));
  state_->Post({.kind = Message::Kind::kFlush, .flush = std::move(call)});
}

void Engine::ProfileSteps(int32_t steps, bool uncaptured) {
  state_->observer.ProfileSteps(steps, uncaptured);
}

void Engine::StartDrain() { state_->draining.store(true, std::memory_order_release); }

bool Engine::Idle() const { return state_->live.load() == 0; }

EngineStats Engine::Stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(state_->stats_mutex);
    stats = state_->stats;
    // For callers the inbox is part of the queue. Under the lock, for a request that the loop takes
    // meanwhile would be in neither.
    stats.load.waiting += static_cast<int32_t>(state_->inbox_reqs.load());
    stats.load.waiting_tokens += state_->inbox_tokens.load();
  }
  stats.work_waiting = state_->live.load() > stats.load.paused && !stats.load.held_up;
  stats.work_since_ns = state_->work_since_ns.load();
  return stats;
}

std::vector<TenantStats> Engine::Tenants() const { return state_->gate.Figures(); }

std::optional<double> Engine::PredictTtftSeconds(TenantId tenant, int64_t prompt_tokens) const {
  return state_->gate.PredictTtftSeconds(tenant, prompt_tokens, SteadyNowNs());
}

void Engine::State::Post(Message message) {
  {
    std::lock_guard lock(inbox_mutex);
    inbox.push_back(std::move(message));
  }
  wake.Notify();
}

void Engine::State::Run() {
  for (;;) {
    // Read before the inbox, so that messages posted before the stop are still taken.
    const bool stop = stopping.load(std::memory_order_acquire);
    scheduler.OnPagesReady(transport->ready_pages());
    bool progress = TakeMessages(stop);
    scheduler.OnTimer(SteadyNowNs(), events);
    progress |= RetireSteps();
    progress |= FinishCopies();
    progress |= NoticeFault();
    progress |= masks.Run(!published.empty(), transport->masks(), scheduler, events);
    recovering = transport->recovering();
    progress |= StartStep();
    progress |= !stop && StartCopies();
    observer.OnLateCopies(scheduler.tiering_stats());
    progress |= ReadView();
    progress |= kv_events.Serve(scheduler.kv_events());
    const bool could_start = !faulted && !recovering && transport->in_flight() == 0;
    const bool waits = scheduler.WaitsForCopies() || scheduler.WaitsForMasks();
    if (!progress && could_start && scheduler.HasWork() && !waits) {
      // The scheduler promises that this cannot happen; if it does, no request waits for ever.
      EndEverything("the scheduler found nothing to run");
      progress = true;
    }
    Deliver();
    const int64_t published_ns = published.empty() ? 0 : published.front().published_ns;
    const int64_t mask_timer = masks.WithholdLate(published_ns, SteadyNowNs(), scheduler);
    if (progress) continue;
    if (stop && live.load() == 0 && transport->in_flight() == 0) break;
    // Without workers the timers of copies cannot be served.
    const bool copying = !faulted && !recovering;
    wake.Wait(std::min(mask_timer, copying ? scheduler.NextTimer() : scheduler.NextDeadline()));
  }
  transport.reset();  // sends the shutdown plan and joins the workers
}

bool Engine::State::TakeMessages(bool stop) {
  if (turn_next == turn.size()) {
    turn.clear();
    turn_next = 0;
    std::lock_guard lock(inbox_mutex);
    turn.swap(inbox);
  }
  const size_t end = std::min(turn.size(), turn_next + kInboxPerTurn);
  const bool any = turn_next < end;
  TimelineSpan span(
      {.name = "inbox", .args = {{{"messages", static_cast<int64_t>(end - turn_next)}}}});
  if (!any) span.Drop();
  for (; turn_next < end; ++turn_next) Take(turn[turn_next], stop);
  return any;
}

void Engine::State::Take(Message& message, bool stop) {
  const int64_t now_ns = SteadyNowNs();
  switch (message.kind) {
    case Message::Kind::kAdd: return Add(std::move(message.answers), stop);
    case Message::Kind::kCancel:
      return scheduler.Cancel(message.id, message.reason, now_ns, events, message.keep_output);
    case Message::Kind::kCancelAll: return scheduler.CancelAll(message.reason, now_ns, events);
    case Message::Kind::kPause: return scheduler.SetPaused(message.id, true);
    case Message::Kind::kResume:
      if (!scheduler.HasWork()) work_since_ns.store(now_ns);
      return scheduler.SetPaused(message.id, false);
    case Message::Kind::kSession:
      return message.session->done(scheduler.Run(std::move(message.session->operation), now_ns));
    case Message::Kind::kObserve: return scheduler.SetSessionObserver(message.observer);
    case Message::Kind::kTenants: return scheduler.SetTenants(*message.tenants);
    case Message::Kind::kView: return viewers.push_back(std::move(*message.view));
    case Message::Kind::kFlush: return message.flush->second(scheduler.Flush(message.flush->first));
  }
}

void Engine::State::Add(std::vector<std::unique_ptr<Request>> answers, bool stop) {
  const int64_t now_ns = SteadyNowNs();
  const TenantId tenant = answers[0]->tenant;
  int64_t prompt = static_cast<int64_t>(answers[0]->prompt.size());
  counts.taken_tokens += prompt;
  counts.taken_reqs += static_cast<int64_t>(answers.size());  // which share the prompt
  for (size_t i = 0; i < answers.size(); ++i) gate.Take(tenant, std::exchange(prompt, 0));
  if (!scheduler.HasWork()) work_since_ns.store(now_ns);
  if (answers[0]->session_turn.has_value()) {
    scheduler.AddTurn(std::move(answers[0]), now_ns, events);
    TurnStart& start = events.starts.back();
    if (!start.status.ok()) gate.Untake();
    gate.CompleteRefusal(tenant, start.prompt_tokens, now_ns, &start.status);
  } else {
    scheduler.AddAnswers(std::move(answers));
  }
  // No other request is live then.
  if (faulted) scheduler.CancelAll(FinishReason::kEngineFault, now_ns, events);
  if (stop) scheduler.CancelAll(FinishReason::kDraining, now_ns, events);
}

// A part in each turn of the loop, so that a step waits for one part at most.
bool Engine::State::ReadView() {
  if (viewers.empty()) return false;
  const int64_t began_ns = SteadyNowNs();
  const bool complete = scheduler.ReadView(view);
  const int64_t now_ns = SteadyNowNs();
  view_ns += now_ns - began_ns;
  if (!complete) return true;
  view.taken_ns = now_ns;
  view.took_ns = std::exchange(view_ns, 0);
  for (const ViewCompletion& done : viewers) done(view);
  viewers.clear();
  return true;
}

// When the workers died and new ones will replace them, every live request goes back to the queue
// with the tokens it has. These are computed again, and the next tokens are the same as without the
// fault. True when there was a fault: the transport has then forgotten the steps in flight.
bool Engine::State::NoticeFault() {
  const std::string fault = faulted ? "" : transport->fault();
  if (fault.empty()) return false;
  const bool recovers = transport->Recover();
  published.clear();
  observer.OnRecovery();
  if (!recovers) {
    EndEverything(fault);
    return true;
  }
  scheduler.RequeueAll(SteadyNowNs(), events);
  ++counts.recoveries;
  const SchedulerLoad load = scheduler.Load();
  Log(Severity::kWarning, "requests wait for new workers",
      {{"fault", fault}, {"waiting", load.waiting}, {"ended", events.finishes.size()}});
  return true;
}

bool Engine::State::RetireSteps() {
  bool any = false;
  while (const StepResult* result = transport->Poll()) {
    // Checked before the result is used: tokens that ranks disagree on are never delivered.
    if (NoticeFault()) return true;
    const TimelineSpan span({.name = "retire"});
    scheduler.Retire(*result, SteadyNowNs(), events);
    observer.OnStep(*transport, published.front());
    CountStep(*result);
    published.erase(published.begin());
    transport->Release();
    any = true;
  }
  return any;
}

bool Engine::State::FinishCopies() {
  CopyAck ack;
  bool any = false;
  while (!faulted && transport->PollCopy(ack)) {
    // Checked first, as for results.
    if (NoticeFault()) return true;
    const int64_t now_ns = SteadyNowNs();
    observer.OnCopyEnd(ack, now_ns);
    scheduler.OnCopy(ack, now_ns);
    any = true;
  }
  return any;
}

// Runs without live requests as well, for idle sessions. A job that the transport does not take has
// failed: its workers are dying, or there is no host memory.
bool Engine::State::StartCopies() {
  if (faulted || recovering) return false;
  bool any = false;
  while (scheduler.NextCopy(SteadyNowNs(), copy)) {
    any = true;
    if (transport->Submit(copy)) {
      observer.OnCopyStart(copy);
      continue;
    }
    scheduler.OnCopy({.job = copy.job, .status = CopyStatus::kFailed}, SteadyNowNs());
    break;
  }
  return any;
}

void Engine::State::CountStep(const StepResult& result) {
  ++counts.steps;
  counts.prompt_tokens += static_cast<uint64_t>(published.front().prompt_tokens);
  counts.last_step_tokens = published.front().tokens;
  step_sizes.Add(counts.last_step_tokens);
  counts.last_step_ns = result.finished_ns - result.started_ns;
  counts.steps_ns += counts.last_step_ns;
  counts.last_retired_ns = SteadyNowNs();
  masks.OnStepEnd(counts.last_step_ns, counts.last_retired_ns);
  const auto graph = std::ranges::find(graphs, published.front().graph_size, &GraphUse::size);
  if (graph == graphs.end() || !published.front().captured()) return;
  ++graph->replays;
  graph->padded_rows += static_cast<uint64_t>(graph->size - published.front().tokens);
}

bool Engine::State::StartStep() {
  if (faulted || !scheduler.HasWork()) return false;
  StepPlan* plan = transport->NextSlot();
  if (plan == nullptr) return false;
  TimelineSpan span({.name = "plan"});
  const int64_t now_ns = SteadyNowNs();
  if (!scheduler.Schedule(now_ns, *plan, events)) {
    span.Drop();
    return false;
  }
  plan->graph_size = GraphSizeFor(*plan, graph_sizes);
  plan->watch = observer.NextWatch(now_ns, transport->in_flight());
  PublishedStep step{.rows = static_cast<int32_t>(plan->work.size()),
                     .tokens = plan->num_tokens,
                     .graph_size = plan->graph_size,
                     .published_ns = now_ns,
                     .watch = plan->watch};
  for (const TokenRun& run : plan->token_runs) {
    step.prompt_tokens += static_cast<int32_t>(run.count);
  }
  step.prompt_tokens -= plan->num_found + plan->num_decoded;
  published.push_back(step);
  transport->Publish();
  return true;
}

void Engine::State::EndEverything(const std::string& fault) {
  Log(Severity::kError, "engine fault: ending every request", {{"fault", fault}});
  // Later results of the workers are ignored: the scheduler forgets the steps in flight with the
  // rows and blocks they used.
  const int64_t now_ns = SteadyNowNs();
  scheduler.RequeueAll(now_ns, events);
  scheduler.CancelAll(FinishReason::kEngineFault, now_ns, events);
  faulted = true;
  counts.fault = fault;
}

void Engine::State::Deliver() {
  PublishStats();
  TimelineSpan span({.name = "deliver"});
  if (events.starts.empty() && events.tokens.empty() && events.finishes.empty()) span.Drop();
  if (!events.starts.empty()) {
    sink->OnTurnStarts(events.starts);
    live.fetch_sub(std::ranges::count_if(
        events.starts, [](const TurnStart& start) { return !start.status.ok(); }));
  }
  if (!events.readings.empty()) sink->OnReadings(events.readings, events.reading_words);
  if (!events.tokens.empty() || !events.finishes.empty()) {
    sink->OnStep(events.tokens, events.finishes);
    live.fetch_sub(static_cast<int64_t>(events.finishes.size()));
  }
  events.Clear();
}

void Engine::State::PublishStats() {
  const SchedulerLoad load = scheduler.Load();
  tenant_changes.clear();
  scheduler.TakeTenantChanges(tenant_changes);
  gate.Publish(load, tenant_changes, SteadyNowNs());
  const uint64_t deadline_refusals = gate.deadline_refusals();
  std::lock_guard lock(stats_mutex);
  if (stats.load.held_up && !load.held_up) work_since_ns.store(SteadyNowNs());
  inbox_reqs.fetch_sub(counts.taken_reqs);
  inbox_tokens.fetch_sub(counts.taken_tokens);
  stats.deadline_refusals = deadline_refusals;
  stats.masks = masks.stats(scheduler);
  stats.load = load;
  stats.cache = scheduler.cache_stats();
  stats.tiering = scheduler.tiering_stats();
  stats.steps += counts.steps;
  stats.steps_ns += counts.steps_ns;
  stats.prompt_tokens += counts.prompt_tokens;
  stats.generated_tokens += events.tokens.size();
  stats.preemptions += events.preempted;
  stats.guessed_tokens += events.guessed;
  stats.accepted_guesses += events.accepted;
  stats.recovering = recovering;
  stats.recoveries += counts.recoveries;
  stats.rank_mismatches = transport->rank_mismatches();
  if (counts.steps > 0) {
    stats.last_step_tokens = counts.last_step_tokens;
    stats.last_step_ns = counts.last_step_ns;
    stats.last_retired_ns = counts.last_retired_ns;
    stats.graphs = graphs;
    stats.step_sizes = step_sizes;
    stats.sampled = observer.sampled();
  }
  if (!counts.fault.empty()) stats.fault = counts.fault;
  counts = {};
}

}  // namespace quire
