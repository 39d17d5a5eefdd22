// The scheduler's calls: requests, cancels, results and faults, and the changes they make.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "engine/schedule/guess_choice.h"
#include "engine/schedule/live_sequences.h"
#include "engine/schedule/pace/step_cost_fit.h"
#include "engine/schedule/sessions/session_requests.h"
#include "engine/schedule/step_planner.h"
#include "engine/schedule/steps_in_flight.h"
#include "engine/schedule/turns.h"
#include "engine/schedule/view_taker.h"
#include "kernels/check.h"

namespace quire {
namespace {

// A request that was running at this many worker deaths is suspected to be their cause.
constexpr int32_t kMaxRequeues = 2;
// A step that took so many times what its shape takes may have waited for a mask.
constexpr double kHeldUpShare = 1.25;

void ReservePlan(const SchedulerConfig& config, StepPlan& plan) {
  const size_t num_tokens = MaxPlanTokens(config.max_num_batched_tokens, config.max_model_len);
  const size_t num_blocks = num_tokens / config.block_size + size_t(config.max_num_seqs) * 2;
  plan.new_rows.reserve(config.max_num_seqs);
  plan.token_runs.reserve(config.max_num_seqs);
  plan.block_adds.reserve(num_blocks);
  plan.block_clones.reserve(config.max_num_seqs);
  plan.work.reserve(config.max_num_seqs);
  plan.tokens.reserve(num_tokens + config.max_num_seqs);
}

}  // namespace

struct Scheduler::State {
  explicit State(const SchedulerConfig& config_in)
      : config(config_in),
        sequences(config_in),
        turns(config_in, sequences),
        pacer(config_in, fit.cost()),
        guesses(config_in, sequences),
        planner(config_in, sequences, pacer, guesses),
        view(sequences),
        steps(config_in.max_num_seqs) {}

  bool Fits(int64_t prompt_tokens, int64_t max_tokens) const;
  Sequence& Add(std::unique_ptr<Request> request, uint64_t turn);
  void Finish(Sequence& sequence, FinishReason reason, int64_t now_ns, SchedulerEvents& events);
  void ReleaseIfDrained(Sequence& sequence, int64_t now_ns, SchedulerEvents& events);
  void EmitEnd(const Sequence& sequence, int32_t position, int64_t now_ns, SchedulerEvents& events);
  void Measure(const StepResult& result, const StepShape& shape, int64_t masks_ns);
  // The oldest step's readings of its work `index`, from number `next` on, those of its draw only
  // if it `drew`. False: the hidden states of the request, which is live, have NaN or infinities.
  bool TakeReadings(const StepResult& result, size_t index, size_t& next, bool drew,
                    SchedulerEvents& events);
  void AcceptSamples(const StepRecord::Work& work, std::span<const SampledToken> samples,
                     int64_t now_ns, SchedulerEvents& events);
  void AcceptSample(Sequence& sequence, const SampleResult& result, int64_t now_ns,
                    SchedulerEvents& events);
  bool BringsPrompt(const Sequence& sequence);
  void AskForMask(Sequence& sequence, int64_t now_ns);
  void TakeBackDraw(Sequence& sequence, int64_t now_ns);
  void CheckSteps() const;

  const SchedulerConfig config;
  LiveSequences sequences;
  Turns turns;
  StepCostFit fit;
  PromptPacer pacer;
  GuessChoice guesses;
  StepPlanner planner;
  ViewTaker view;
  StepsInFlight steps;
  DrawMasks masks;
  uint64_t next_step = 1;
  int64_t last_finished_ns = 0;  // of the last step retired
};

Scheduler::Scheduler(const SchedulerConfig& config) {
  CHECK_GT(config.block_size, 0);
  CHECK_GT(config.max_model_len, 1);
  CHECK_GT(config.max_num_seqs, 0);
  CHECK_GT(config.max_num_batched_tokens, 0);
  CHECK_GE(config.max_num_queued_reqs, 0);
  CHECK_GT(config.max_partial_prefills, 0);
  CHECK_GE(config.growth_horizon, 0);
  state_ = std::make_unique<State>(config);
}

Scheduler::~Scheduler() = default;

bool Scheduler::Fits(int64_t prompt_tokens, int64_t max_tokens) const {
  return state_->Fits(prompt_tokens, max_tokens);
}

bool Scheduler::State::Fits(int64_t prompt_tokens, int64_t max_tokens) const {
  if (prompt_tokens < 1 || max_tokens < 1 || prompt_tokens >= config.max_model_len) return false;
  const int64_t end = prompt_tokens + std::min(max_tokens, config.max_model_len - prompt_tokens);
  // The last token is never computed.
  return end - 1 <= int64_t{config.num_blocks - 1} * config.block_size;
}

void Scheduler::SetTenants(const TenantTable& table) {
  CHECK(ValidateTenantTable(table).ok());
  state_->sequences.accounts().SetTable(table);
  state_->sequences.kv().GiveBackExcess();
}

void Scheduler::Add(std::unique_ptr<Request> request) {
  CHECK(!request->session_turn.has_value());
  state_->Add(std::move(request), 0);
}

void Scheduler::AddAnswers(std::vector<std::unique_ptr<Request>> requests) {
  CHECK(!requests.empty());
  LiveSequences& sequences = state_->sequences;
  Sequence* leader = nullptr;
  for (std::unique_ptr<Request>& request : requests) {
    CHECK(!request->session_turn.has_value());
    Sequence& sequence = state_->Add(std::move(request), 0);
    if (leader != nullptr) {
      sequences.Follow(sequence, *leader);
    } else if (requests.size() > 1 && state_->BringsPrompt(sequence)) {
      leader = &sequence;
    }
  }
}

void Scheduler::AddTurn(std::unique_ptr<Request> request, int64_t now_ns, SchedulerEvents& events) {
  const absl::StatusOr<uint64_t> turn = state_->turns.Open(*request, now_ns);
  events.starts.push_back({.id = request->id,
                           .cookie = request->cookie,
                           .status = turn.status(),
                           .prompt_tokens = static_cast<int32_t>(request->prompt.size()),
                           .max_tokens = request->sampling.max_tokens,
                           .predicted_ttft_ns = request->predicted_ttft_ns});
  if (turn.ok()) state_->Add(std::move(request), *turn).timings.opened_ns = now_ns;
}

Sequence& Scheduler::State::Add(std::unique_ptr<Request> request, uint64_t turn) {
  const int64_t num_prompt = static_cast<int64_t>(request->prompt.size());
  const int64_t max_tokens = request->sampling.max_tokens;
  CHECK(Fits(num_prompt, max_tokens));
  const int64_t end = std::min<int64_t>(num_prompt + max_tokens, config.max_model_len);
  Sequence& sequence = sequences.Add(std::move(request), static_cast<int32_t>(end), turn);
  if (sequence.guided()) {
    const auto& compiled = sequence.request->guide;
    sequence.masks.guide =
        std::make_unique<OutputGuide>(sequence.request->id, compiled, config.vocab_size);
    AskForMask(sequence, sequence.request->arrival_ns);
  }
  return sequence;
}

// Whether full blocks of the prompt cannot be read yet, and others with this prompt will find them
// once this sequence has its first token.
bool Scheduler::State::BringsPrompt(const Sequence& sequence) {
  const SequenceKv::Found found = sequences.kv().Look(sequence);
  const int32_t full = (sequence.num_prompt - 1) / config.block_size;
  return found.node != kNoNode && found.num_blocks < full;
}

void Scheduler::State::AskForMask(Sequence& sequence, int64_t now_ns) {
  const int64_t tokens_left = sequence.hard_end - sequence.known();
  masks.AskFor(sequence.masks, sequence.output, tokens_left, {next_step, now_ns});
}

// A draw in a step that has just retired had no mask. It counts as not planned: its position is
// computed again, for the logits.
void Scheduler::State::TakeBackDraw(Sequence& sequence, int64_t now_ns) {
  --sequence.table_tokens;
  --sequence.computed;
  --sequence.planned;
  masks.Lose(sequence.masks, now_ns);
}

std::unique_ptr<OutputGuide> Scheduler::NextMask() { return state_->masks.Next(); }

void Scheduler::OnMask(std::unique_ptr<OutputGuide> guide, int64_t now_ns,
                       SchedulerEvents& events) {
  Sequence* sequence = state_->sequences.Find(guide->id());
  if (sequence == nullptr) return;  // it ended meanwhile
  const OutputGuide::Verdict verdict = guide->verdict();
  state_->masks.Take(sequence->masks, std::move(guide), sequence->known(),
                     {state_->next_step, now_ns});
  if (verdict == OutputGuide::Verdict::kGood) return;
  const bool no_token = verdict == OutputGuide::Verdict::kNoToken;
  state_->Finish(*sequence, no_token ? FinishReason::kNoToken : FinishReason::kEngineFault, now_ns,
                 events);
}

void Scheduler::SetMaskBoard(const MaskBoard* board) {
  state_->masks.SetBoard(board);
  state_->planner.SetLateMasks(board != nullptr);
}

bool Scheduler::AwaitsMasks() const {
  if (state_->steps.size() == 0) return false;
  const StepRecord& oldest = state_->steps.oldest();
  return std::ranges::any_of(oldest.work, [&oldest](const StepRecord::Work& work) {
    return work.late && work.sequence->masks.late.Awaits(oldest.step);
  });
}

void Scheduler::WithholdMasks(int64_t now_ns) {
  if (state_->steps.size() == 0) return;
  const StepRecord& oldest = state_->steps.oldest();
  for (const StepRecord::Work& work : oldest.work) {
    SequenceMasks& masks = work.sequence->masks;
    if (work.late && masks.late.Awaits(oldest.step)) state_->masks.Lose(masks, now_ns);
  }
}

bool Scheduler::WaitsForMasks() const {
  return std::ranges::any_of(state_->sequences.records(), [](const Sequence& sequence) {
    return sequence.live() && !sequence.paused && !sequence.has_mask();
  });
}

void Scheduler::Cancel(RequestId id, FinishReason reason, int64_t now_ns, SchedulerEvents& events,
                       int32_t keep_output) {
  if (keep_output != kKeepAll) state_->turns.Cut(id, keep_output, now_ns);
  Sequence* sequence = state_->sequences.Find(id);
  if (sequence != nullptr) state_->Finish(*sequence, reason, now_ns, events);
}

void Scheduler::SetPaused(RequestId id, bool paused) {
  Sequence* sequence = state_->sequences.Find(id);
  if (sequence == nullptr || sequence->paused == paused) return;
  if (paused) {
    state_->sequences.Pause(*sequence);
  } else {
    state_->sequences.Resume(*sequence);
  }
}

void Scheduler::CancelAll(FinishReason reason, int64_t now_ns, SchedulerEvents& events) {
  for (Sequence& sequence : state_->sequences.records()) {
    if (sequence.live()) state_->Finish(sequence, reason, now_ns, events);
  }
}

void Scheduler::ExpireDeadlines(int64_t now_ns, SchedulerEvents& events) {
  for (int32_t i = 0; i < kMaxExpiriesPerCall; ++i) {
    if (NextDeadline() == kNoDeadline || NextDeadline() > now_ns) return;
    state_->Finish(*state_->sequences.EarliestDeadline(), FinishReason::kDeadline, now_ns, events);
  }
}

bool Scheduler::Schedule(int64_t now_ns, StepPlan& plan, SchedulerEvents& events) {
  State& s = *state_;
  plan.Clear();
  ReservePlan(s.config, plan);
  StepRecord& record = s.steps.Next();
  plan.step = s.next_step;
  s.planner.Plan(now_ns, plan, record, events);
  // With no step in flight nothing else would ever move. Pins and exports may hold the blocks that
  // running sequences need: the last of these then gives up its own, and waits in the queue. Blocks
  // that were given up for a waiting sequence are free by now.
  while (plan.work.empty() && s.steps.size() == 0 &&
         (s.planner.starved() || s.planner.made_room())) {
    if (s.planner.starved()) {
      Sequence& last = *s.sequences.running().back();
      s.sequences.Preempt(last);
      last.timings.preempted_ns = now_ns;
      ++events.preempted;
    }
    s.planner.Plan(now_ns, plan, record, events);
  }
  if (plan.work.empty()) return false;
  record.step = s.next_step++;
  s.masks.OpenEntries(plan);
  record.readings = plan.readings;
  s.steps.Push();
  return true;
}

void Scheduler::Retire(const StepResult& result, int64_t now_ns, SchedulerEvents& events) {
  State& s = *state_;
  CHECK_GT(s.steps.size(), 0);
  const StepRecord& record = s.steps.oldest();
  CHECK_EQ(record.step, result.step);
  size_t num_samples = 0, num_readings = 0;
  int64_t masks_ns = 0;  // the last of its late masks was there, or was not to come
  CHECK_EQ(result.reading_words.size(), record.reading_words());
  for (size_t i = 0; i < record.work.size(); ++i) {
    const StepRecord::Work& work = record.work[i];
    Sequence& sequence = *work.sequence;
    const int32_t guesses = std::max(0, work.draws - 1);  // of these, none has proved right yet
    sequence.computed += work.count - guesses;
    sequence.planned -= guesses;
    sequence.pending -= work.draws;
    --sequence.steps_in_flight;
    s.sequences.kv().EndClone(sequence);
    CHECK_LE(num_samples + work.draws, result.samples.size());
    auto samples = std::span(result.samples).subspan(num_samples, work.draws);
    for (const SampledToken& sample : samples) CHECK_EQ(sample.row, sequence.row);
    num_samples += work.draws;
    if (work.late) masks_ns = std::max(masks_ns, sequence.masks.late.PopOldest());
    const bool drew = !work.late || samples[0].result.nonfinite != SampleResult::kNoMask;
    if (!drew) {
      s.TakeBackDraw(sequence, now_ns);
      samples = {};
    }
    const bool sound = s.TakeReadings(result, i, num_readings, drew, events);
    if (!sound) s.Finish(sequence, FinishReason::kNumeric, now_ns, events);
    s.AcceptSamples(work, samples, now_ns, events);
    s.ReleaseIfDrained(sequence, now_ns, events);
  }
  s.Measure(result, record.shape, masks_ns);
  CHECK_EQ(num_samples, result.samples.size());
  s.steps.PopOldest();
}

bool Scheduler::State::TakeReadings(const StepResult& result, size_t index, size_t& next, bool drew,
                                    SchedulerEvents& events) {
  const std::vector<StepReading>& readings = steps.oldest().readings;
  const Sequence& sequence = *steps.oldest().work[index].sequence;
  bool sound = true;
  for (; next < readings.size() && readings[next].work == static_cast<int32_t>(index); ++next) {
    if (!sequence.live()) continue;
    StepReading reading = readings[next];
    if (reading.kind == StepReading::Kind::kDrawn && !drew) continue;
    const auto words = std::span(result.reading_words).subspan(reading.begin, reading.words);
    if (reading.kind == StepReading::Kind::kPooled) {
      for (const uint32_t word : words) sound = sound && std::isfinite(std::bit_cast<float>(word));
    } else if (reading.kind == StepReading::Kind::kPrompt) {
      const auto stride = static_cast<size_t>(ScoreWords(reading.num_top, reading.num_ids));
      for (size_t at = 0; at < words.size(); at += stride) sound = sound && words[at + 2] != 0;
    }  // a drawn token's own result tells it
    if (!sound) continue;
    reading.begin = static_cast<uint32_t>(events.reading_words.size());
    events.reading_words.insert(events.reading_words.end(), words.begin(), words.end());
    events.readings.push_back({sequence.request->id, sequence.request->cookie, reading});
  }
  return sound;
}

// Steps overlap on the device's queue: one begins when the one before it ends.
void Scheduler::State::Measure(const StepResult& result, const StepShape& shape, int64_t masks_ns) {
  const int64_t began_ns = std::max(result.started_ns, last_finished_ns);
  last_finished_ns = result.finished_ns;
  const int64_t ns = result.finished_ns - began_ns;
  if (ns <= 0) return;
  // A sampler takes far less than half of a step, so a step did not wait for masks that were there
  // in its first half. The time of one that may have waited, and took longer than its shape
  // does, tells nothing of its shape.
  const StepCost& cost = fit.cost();
  const bool is_long = static_cast<double>(ns) * 1e-9 > kHeldUpShare * cost.Seconds(shape);
  if (masks_ns > began_ns + ns / 2 && cost.known && is_long) return;
  // A step that is timed by parts runs otherwise than the others.
  if (result.parts.empty()) fit.Add(shape, static_cast<double>(ns) * 1e-9);
  if (shape.prompt_tokens == 0) return;
  sequences.kv().tiering().OnPrefill(static_cast<int32_t>(shape.prompt_tokens), ns);
}

// Takes the draws up to the first that differs from its guess, that one included. A sequence that
// ended meanwhile does not need them; a preempted one does.
void Scheduler::State::AcceptSamples(const StepRecord::Work& work,
                                     std::span<const SampledToken> samples, int64_t now_ns,
                                     SchedulerEvents& events) {
  Sequence& sequence = *work.sequence;
  if (!sequence.live() || samples.empty()) return;
  const auto guesses = static_cast<int32_t>(samples.size()) - 1;
  sequence.guessed += guesses;
  events.guessed += guesses;
  int32_t accepted = 0;
  bool right = true;
  for (int32_t i = 0; right; ++i) {
    const SampleResult& result = samples[i].result;
    right =
        i < guesses && result.nonfinite == 0 && result.token == sequence.guesser->in_flight()[i];
    accepted += right;
    sequence.accepted += right;
    if (i > 0) sequences.accounts().ChargeDecode(sequence.account);  // the plan charged the first
    AcceptSample(sequence, result, now_ns, events);
    if (!sequence.live()) break;
    // The KV behind a right guess is good.
    sequence.computed += right;
    sequence.planned += right;
  }
  events.accepted += accepted;
  if (guesses == 0 || !sequence.live()) return;
  sequence.table_tokens -= guesses - accepted;
  sequence.guesser->EndStep(accepted);
}

void Scheduler::State::AcceptSample(Sequence& sequence, const SampleResult& result, int64_t now_ns,
                                    SchedulerEvents& events) {
  if (result.nonfinite) {
    const bool sound = result.nonfinite == SampleResult::kNoToken;
    Finish(sequence, sound ? FinishReason::kNoToken : FinishReason::kNumeric, now_ns, events);
    return;
  }
  sequences.AppendToken(sequence, result.token);
  const Request& request = *sequence.request;
  events.tokens.push_back(
      {request.id, request.cookie, result.token, sequence.num_output() - 1, result.logprob});
  if (sequence.timings.first_token_ns == 0) sequence.timings.first_token_ns = now_ns;
  sequence.timings.last_token_ns = now_ns;
  const FinishReason reason = TakeToken(sequence);
  if (reason != FinishReason::kNone) {
    Finish(sequence, reason, now_ns, events);
    return;
  }
  guesses.OnToken(sequence);
  if (sequence.guided()) AskForMask(sequence, now_ns);
}

// Ends a live sequence. A turn's FinishEvent follows when its session is free; every other
// FinishEvent is emitted at once.
void Scheduler::State::Finish(Sequence& sequence, FinishReason reason, int64_t now_ns,
                              SchedulerEvents& events) {
  sequence.end = reason;
  masks.Withhold(sequence.masks, now_ns);
  if (sequence.turn == 0) EmitEnd(sequence, 0, now_ns, events);
  sequences.Finish(sequence);
  ReleaseIfDrained(sequence, now_ns, events);
}

void Scheduler::State::ReleaseIfDrained(Sequence& sequence, int64_t now_ns,
                                        SchedulerEvents& events) {
  const bool ended = sequence.state == SequenceState::kFinishing && sequence.steps_in_flight == 0;
  if (ended && sequence.turn != 0) {
    EmitEnd(sequence, turns.End(sequence, now_ns), now_ns, events);
  }
  sequences.ReleaseIfDrained(sequence);
}

void Scheduler::State::EmitEnd(const Sequence& sequence, int32_t position, int64_t now_ns,
                               SchedulerEvents& events) {
  FinishEvent event;
  event.id = sequence.request->id;
  event.cookie = sequence.request->cookie;
  event.reason = sequence.end;
  if (event.reason == FinishReason::kEos || event.reason == FinishReason::kStopToken) {
    event.stop_token = sequence.output.back();
  }
  event.usage.prompt_tokens = sequence.num_prompt;
  event.usage.completion_tokens = sequence.num_output();
  event.usage.cached_tokens = sequence.residency.device_tokens + sequence.residency.host_tokens;
  event.usage.preemptions = sequence.preemptions;
  event.usage.guessed_tokens = sequence.guessed;
  event.usage.accepted_guesses = sequence.accepted;
  event.residency = sequence.residency;
  event.position = position;
  event.timings = sequence.timings;
  event.timings.finished_ns = now_ns;
  events.finishes.push_back(event);
}

void Scheduler::RequeueAll(int64_t now_ns, SchedulerEvents& events) {
  State& s = *state_;
  s.steps.Clear();
  s.next_step = 1;
  for (Sequence& sequence : s.sequences.records()) {
    sequence.steps_in_flight = sequence.pending = 0;
    sequence.masks.late.Clear();
    if (sequence.state == SequenceState::kRestoring) {
      s.sequences.Withdraw(sequence);
      sequence.computes = true;  // the copy that it waited for may have killed the workers
    }
    if (sequence.row == Sequence::kNoRow) continue;
    if (!sequence.live()) {
      s.ReleaseIfDrained(sequence, now_ns, events);
    } else if (++sequence.requeues > kMaxRequeues) {
      s.Finish(sequence, FinishReason::kEngineFault, now_ns, events);
    } else {
      s.sequences.Requeue(sequence);
    }
  }
  s.sequences.kv().ForgetDevice();
}

SessionAnswer Scheduler::Run(SessionOperation operation, int64_t now_ns) {
  return RunSessionOperation(sessions(), std::move(operation), now_ns);
}

void Scheduler::SetSessionObserver(SessionObserver* observer) { sessions().SetObserver(observer); }

SessionStore& Scheduler::sessions() { return state_->sequences.kv().sessions(); }

bool Scheduler::NextCopy(int64_t now_ns, CopyJob& job) {
  return state_->sequences.kv().tiering().NextJob(now_ns, job);
}

void Scheduler::OnCopy(const CopyAck& ack, int64_t now_ns) {
  state_->sequences.kv().tiering().OnAck(ack, now_ns);
}

void Scheduler::OnPagesReady(int32_t count) { state_->sequences.kv().ProvidePages(count); }

void Scheduler::OnTimer(int64_t now_ns, SchedulerEvents& events) {
  ExpireDeadlines(now_ns, events);
  sessions().Expire(now_ns, kMaxExpiriesPerCall);
  state_->sequences.kv().tiering().EndLateRestores(now_ns);
}

int64_t Scheduler::NextTimer() const {
  const SequenceKv& kv = state_->sequences.kv();
  return std::min({NextDeadline(), kv.sessions().NextTimer(), kv.tiering().NextTimer()});
}

bool Scheduler::WaitsForCopies() const {
  const LiveSequences& sequences = state_->sequences;
  const BlockPool& pool = sequences.pool();
  const bool held_by_others = sequences.running().empty() && steps_in_flight() == 0 &&
                              pool.num_free() + pool.num_cached() < pool.total();
  return held_by_others || sequences.kv().tiering().HasWork();
}

void Scheduler::TakeTenantChanges(std::vector<TenantStats>& figures) {
  state_->sequences.accounts().TakeChanges(figures);
}

TieringStats Scheduler::tiering_stats() const { return state_->sequences.kv().tiering().stats(); }

CacheStats Scheduler::cache_stats() const { return state_->sequences.kv().stats(); }

bool Scheduler::ReadView(SchedulerView& view) { return state_->view.Continue(view); }

KvEventSource& Scheduler::kv_events() { return state_->sequences.kv().events(); }

FlushedCache Scheduler::Flush(const CacheFlush& flush) {
  return state_->sequences.kv().Flush(flush);
}

bool Scheduler::HasWork() const {
  return state_->sequences.num_live() > state_->sequences.num_paused();
}

int32_t Scheduler::steps_in_flight() const { return state_->steps.size(); }

int64_t Scheduler::NextDeadline() const {
  const Sequence* sequence = state_->sequences.EarliestDeadline();
  return sequence == nullptr ? kNoDeadline : sequence->request->deadline_ns;
}

SchedulerLoad Scheduler::Load() const {
  const LiveSequences& sequences = state_->sequences;
  SchedulerLoad load;
  load.running = static_cast<int32_t>(sequences.running().size());
  load.waiting = static_cast<int32_t>(sequences.num_waiting());
  load.restoring = static_cast<int32_t>(sequences.restoring().size());
  load.paused = static_cast<int32_t>(sequences.num_paused());
  load.held_up = load.running == 0 && load.restoring == 0 && load.waiting > 0 &&
                 steps_in_flight() == 0 && state_->planner.pins_in_the_way();
  load.waiting_tokens = sequences.queue().num_tokens();
  load.free_blocks = sequences.pool().num_free() + sequences.pool().num_cached();
  load.cached_blocks = sequences.pool().num_cached();
  load.total_blocks = sequences.pool().total();
  load.tokens_in_flight = sequences.running_tokens();
  load.prompt_budget = state_->pacer.last();
  load.late_masks = state_->masks.late();
  load.step_cost = state_->fit.cost();
  load.step_cost_error = state_->fit.error();
  return load;
}

void Scheduler::CheckInvariants() const {
  state_->sequences.CheckInvariants();
  state_->CheckSteps();
}

// The sums over the steps in flight agree with the counts of each sequence.
void Scheduler::State::CheckSteps() const {
  struct Sum {
    int32_t steps = 0, samples = 0, tokens = 0;
  };
  std::map<const Sequence*, Sum> sums;
  for (int32_t i = 0; i < steps.size(); ++i) {
    CHECK_EQ(steps[i].step + steps.size() - i, next_step);
    for (const StepRecord::Work& work : steps[i].work) {
      Sum& sum = sums[work.sequence];
      ++sum.steps;
      sum.samples += work.draws;
      sum.tokens += work.count;
    }
  }
  for (const Sequence& sequence : sequences.records()) {
    const auto found = sums.find(&sequence);
    const Sum sum = found == sums.end() ? Sum() : found->second;
    CHECK_EQ(sum.steps, sequence.steps_in_flight);
    CHECK_EQ(sum.samples, sequence.pending);
    CHECK_EQ(sum.tokens, sequence.planned - sequence.computed);
    CHECK(sequence.state != SequenceState::kFree || sum.steps == 0);
  }
}

}  // namespace quire
