// Drives the scheduler, reads its plans back by request, and checks its events.
#include "tests/engine/schedule/simulated_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace quire {
namespace {

SchedulerConfig WithVocabulary(SchedulerConfig config, const ShadowModel& model) {
  config.vocab_size = model.vocab_size;
  return config;
}

std::unique_ptr<ShadowWorker> MakeWorker(const SchedulerConfig& config, const ShadowModel& model) {
  ShadowWorkerOptions options;
  options.num_blocks = config.num_blocks;
  options.block_size = config.block_size;
  options.max_num_seqs = config.max_num_seqs;
  options.max_model_len = config.max_model_len;
  options.max_num_batched_tokens = config.max_num_batched_tokens;
  options.model = model;
  options.abort_on_violation = false;
  return std::make_unique<ShadowWorker>(options);
}

bool Holds(const std::vector<int32_t>& ids, int32_t token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

}  // namespace

std::vector<int32_t> PromptOf(RequestId id, const RequestSpec& spec, int32_t vocab_size) {
  if (!spec.prompt.empty()) return spec.prompt;
  std::vector<int32_t> prompt(spec.prompt_tokens);
  uint64_t x = id * 7919;
  for (int32_t& token : prompt) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocab_size));
  }
  return prompt;
}

ExpectedOutcome Expect(RequestId id, const RequestSpec& spec, const ShadowModel& model,
                       int32_t max_model_len) {
  uint64_t prefix = ShadowModel::kNoTokens;
  for (const int32_t token : PromptOf(id, spec, model.vocab_size)) {
    prefix = ShadowModel::Extend(prefix, token);
  }
  std::vector<int32_t> ends = spec.stop_token_ids;
  if (spec.stops_at_eos) ends.push_back(model.eos_token);
  const std::unique_ptr<TokenGuide> guide = spec.grammar ? spec.grammar->Start() : nullptr;
  std::vector<uint32_t> mask(guide ? static_cast<size_t>(MaskWords(model.vocab_size)) : 0);
  ExpectedOutcome expected;
  for (int32_t length = spec.prompt_tokens;; ++length) {
    const int32_t index = length - spec.prompt_tokens;
    const bool may_stop = index >= spec.min_tokens;
    if (guide != nullptr) {
      guide->SetBudget(std::min(spec.max_tokens - index, max_model_len - length) - 1);
      guide->FillMask(mask);
    }
    const SampleResult next =
        model.Next(prefix, id, may_stop ? std::vector<int32_t>() : ends, mask);
    expected.reason =
        next.nonfinite == SampleResult::kNoToken ? FinishReason::kNoToken : FinishReason::kNumeric;
    if (next.nonfinite) return expected;
    const bool accepted = guide == nullptr || guide->Accept(next.token);
    EXPECT_TRUE(accepted);
    expected.tokens.push_back(next.token);
    expected.reason = FinishReason::kEos;
    if (may_stop && spec.stops_at_eos && next.token == model.eos_token) return expected;
    expected.reason = FinishReason::kStopToken;
    if (may_stop && Holds(spec.stop_token_ids, next.token)) return expected;
    const bool incomplete = guide != nullptr && guide->TokensToClose() > 0;
    expected.reason = incomplete ? FinishReason::kTruncated : FinishReason::kMaxTokens;
    if (index + 1 == spec.max_tokens) return expected;
    if (!incomplete) expected.reason = FinishReason::kContextLimit;
    if (length + 1 == max_model_len) return expected;
    prefix = ShadowModel::Extend(prefix, next.token);
  }
}

SchedulerConfig SessionConfig(int32_t usable_blocks, int32_t num_pages, int32_t max_model_len) {
  SchedulerConfig config;
  config.num_blocks = usable_blocks + 1;
  config.block_size = 4;
  config.max_model_len = max_model_len;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_num_queued_reqs = 64;
  config.growth_horizon = 0;
  config.num_pages = num_pages;
  config.sessions = {.max_sessions = 100,
                     .max_sessions_per_tenant = 100,
                     .max_session_tokens = 1'000'000,
                     .max_model_len = config.max_model_len,
                     .default_ttl_seconds = 1e6,
                     .max_ttl_seconds = 1e6,
                     .default_idle_offload_seconds = 1000,
                     .max_pinned_share = 0.5};
  config.tiering = {.block_bytes = 32, .low_watermark = 0, .high_watermark = 0};
  return config;
}

SimulatedEngine::SimulatedEngine(const SchedulerConfig& config, const ShadowModel& model,
                                 const ShadowFaults& faults)
    : config_(WithVocabulary(config, model)),
      model_(model),
      scheduler_(config_),
      worker_(MakeWorker(config, model)),
      copier_(config.num_pages, config.block_size, faults) {}

RequestId SimulatedEngine::Add(const RequestSpec& spec) {
  const RequestId id = next_id_++;
  std::unique_ptr<Request> request = MakeRequest(id, spec);
  specs_[id] = spec;
  outcomes_[id];
  specs_[id].prompt_tokens = static_cast<int32_t>(request->prompt.size());
  if (spec.session.empty()) {
    scheduler_.Add(std::move(request));
    Settle();
    return id;
  }
  const std::pair key(spec.tenant, spec.session);
  std::vector<int32_t> prompt = sessions_[key];
  prompt.insert(prompt.end(), request->prompt.begin(), request->prompt.end());
  specs_[id].prompt = prompt;
  specs_[id].prompt_tokens = static_cast<int32_t>(prompt.size());
  // Like a request without max_tokens whose default does not fit the context, but fits the pool.
  const auto length = static_cast<int32_t>(prompt.size());
  const int32_t end = length + std::min(spec.max_tokens, config_.max_model_len - length);
  if (end <= (config_.num_blocks - 1) * config_.block_size) {
    request->max_tokens_source = MaxTokensSource::kDefault;
  }
  request->session_turn = TurnRequest{.session = spec.session};
  scheduler_.AddTurn(std::move(request), now_ns, events_);
  const TurnStart start = events_.starts.at(0);
  EXPECT_EQ(start.id, id);
  Settle();
  if (start.status.ok()) {
    EXPECT_EQ(start.prompt_tokens, length);
    last_turn_.erase(key);
    return id;
  }
  specs_.erase(id);
  outcomes_.erase(id);
  --next_id_;
  return 0;
}

std::vector<RequestId> SimulatedEngine::AddAnswers(const std::vector<RequestSpec>& specs) {
  std::vector<RequestId> ids;
  std::vector<std::unique_ptr<Request>> requests;
  for (const RequestSpec& spec : specs) {
    const RequestId id = ids.emplace_back(next_id_++);
    requests.push_back(MakeRequest(id, spec));
    specs_[id] = spec;
    specs_[id].prompt_tokens = static_cast<int32_t>(spec.prompt.size());
    outcomes_[id];
  }
  scheduler_.AddAnswers(std::move(requests));
  Settle();
  return ids;
}

std::unique_ptr<Request> SimulatedEngine::MakeRequest(RequestId id, const RequestSpec& spec) const {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->cookie = reinterpret_cast<void*>(id);
  request->prompt = PromptOf(id, spec, model_.vocab_size);
  request->sampling.row.seed = id;
  request->sampling.max_tokens = spec.max_tokens;
  request->sampling.min_tokens = spec.min_tokens;
  if (spec.stops_at_eos) request->sampling.eos_token_ids = {model_.eos_token};
  request->sampling.stop_token_ids = spec.stop_token_ids;
  request->priority = spec.priority;
  request->arrival_ns = spec.arrival_ns;
  request->deadline_ns = spec.deadline_ns;
  request->tenant = spec.tenant;
  request->bypass_cache = spec.bypass_cache;
  request->max_guesses = spec.max_guesses;
  request->guide = spec.grammar;
  return request;
}

void SimulatedEngine::Cancel(RequestId id, FinishReason reason, int32_t keep_output) {
  ended_.insert(id);
  if (outcomes_.contains(id)) CutTurn(id, keep_output);
  scheduler_.Cancel(id, reason, now_ns, events_, keep_output);
  Settle();
}

// A cut is valid while the turn runs and after its end, until another change of its session.
void SimulatedEngine::CutTurn(RequestId id, int32_t keep_output) {
  Outcome& outcome = outcomes_.at(id);
  outcome.keep_output = std::min(outcome.keep_output, keep_output);
  const RequestSpec& spec = specs_.at(id);
  const auto last = last_turn_.find({spec.tenant, spec.session});
  if (keep_output == kKeepAll || last == last_turn_.end() || last->second != id) return;
  std::vector<int32_t>& tokens = sessions_[last->first];
  const size_t position = spec.prompt.size() + static_cast<size_t>(keep_output);
  if (position >= tokens.size()) return;
  tokens.resize(position);
  last_turn_.erase(last);
}

void SimulatedEngine::OnTimer() {
  scheduler_.OnTimer(now_ns, events_);
  Settle();
}

void SimulatedEngine::MakeMasks() {
  while (std::unique_ptr<OutputGuide> guide = scheduler_.NextMask()) {
    guide->Make();
    EXPECT_NE(guide->verdict(), OutputGuide::Verdict::kRejected);
    scheduler_.OnMask(std::move(guide), now_ns, events_);
  }
  if (holds_masks) Settle();
}

void SimulatedEngine::UseMaskBoard() {
  const MaskBoard::Shape shape{.depth = 8,
                               .masks = config_.max_num_seqs,
                               .words = static_cast<int32_t>(MaskWords(model_.vocab_size))};
  board_memory_.resize(static_cast<size_t>(MaskBoard::Bytes(shape)));
  board_ = MaskBoard(board_memory_.data(), shape);
  scheduler_.SetMaskBoard(&board_);
  worker_->AttachMasks(board_);
}

bool SimulatedEngine::SendCopy() {
  CopyJob job;
  if (!scheduler_.NextCopy(now_ns, job)) return false;
  CheckCopies(job);
  copier_.Submit(job, *worker_);
  EXPECT_EQ(copier_.violation(), "");
  copies_.push_back(job);
  Settle();
  return true;
}

bool SimulatedEngine::FinishCopy(CopyDirection direction) {
  if (copier_.in_flight(direction) == 0) return false;
  const CopyAck ack = copier_.Finish(direction, *worker_);
  std::erase_if(copies_, [&](const CopyJob& job) { return job.job == ack.job; });
  scheduler_.OnCopy(ack, now_ns);
  Settle();
  return true;
}

void SimulatedEngine::RunCopies() {
  bool any = true;
  while (any) {
    any = SendCopy();
    any |= FinishCopy(CopyDirection::kLoad);
    any |= FinishCopy(CopyDirection::kStore);
  }
}

void SimulatedEngine::CreateSession(TenantId tenant, const std::string& name) {
  EXPECT_TRUE(scheduler_.sessions().Create(tenant, name, {}, now_ns).ok());
  SetSessionTokens(tenant, name, {});
}

void SimulatedEngine::CheckSession(TenantId tenant, const std::string& name) {
  const auto info = scheduler_.sessions().Get(tenant, name);
  const auto turn = scheduler_.sessions().BeginTurn(tenant, name, std::nullopt, now_ns);
  if (!info.ok() || !turn.ok()) return;
  const std::span<const int32_t> tokens = scheduler_.sessions().TokensOf(*turn);
  EXPECT_EQ(std::vector<int32_t>(tokens.begin(), tokens.end()), SessionTokens(tenant, name));
  EXPECT_EQ(info->position, static_cast<int32_t>(tokens.size()));
  scheduler_.sessions().AbortTurn(*turn, now_ns);
  last_turn_.erase({tenant, name});
  Settle();
}

// A turn that ended well appends its prompt and the kept part of its output.
void SimulatedEngine::EndTurn(const FinishEvent& event) {
  const RequestSpec& spec = specs_.at(event.id);
  const Outcome& outcome = outcomes_.at(event.id);
  const bool well =
      event.reason == FinishReason::kEos || event.reason == FinishReason::kStopToken ||
      event.reason == FinishReason::kStopText || event.reason == FinishReason::kMaxTokens ||
      event.reason == FinishReason::kContextLimit || event.reason == FinishReason::kNoToken ||
      event.reason == FinishReason::kTruncated;
  EXPECT_EQ(well, event.position > 0);
  if (!well) return;
  std::vector<int32_t>& tokens = sessions_[{spec.tenant, spec.session}];
  tokens = spec.prompt;
  last_turn_[{spec.tenant, spec.session}] = event.id;
  const auto kept = std::min<size_t>(outcome.keep_output, outcome.tokens.size());
  tokens.insert(tokens.end(), outcome.tokens.begin(), outcome.tokens.begin() + kept);
  EXPECT_EQ(event.position, static_cast<int32_t>(tokens.size()));
}

void SimulatedEngine::CancelAll(FinishReason reason) {
  scheduler_.CancelAll(reason, now_ns, events_);
  Settle();
}

void SimulatedEngine::ExpireDeadlines() {
  scheduler_.ExpireDeadlines(now_ns, events_);
  Settle();
}

bool SimulatedEngine::Schedule() {
  StepPlan plan;
  const int32_t preempted_before = preempted_;
  const int32_t admitted_before = admitted_;
  const bool starves = steps_in_flight() == 0;  // others may hold the blocks that are needed
  last_plan_.clear();
  const bool any = scheduler_.Schedule(now_ns, plan, events_);
  Settle();
  if (preempted_ > preempted_before && !starves) {
    EXPECT_EQ(admitted_, admitted_before) << "admitted in a step that preempted";
  }
  if (!any) return false;
  CheckNewRowsAreFree(plan);
  ReadPlan(plan);
  CheckWritesAreExclusive();
  flights_.back().plan = last_step_plan_ = std::move(plan);
  return true;
}

void SimulatedEngine::Retire() {
  worker_->Run(flights_.front().plan, last_result_);
  last_result_.started_ns = last_end_ns_;
  last_result_.finished_ns = last_end_ns_ += ns_per_token * flights_.front().plan.num_tokens;
  EXPECT_EQ(worker_->violation(), "");
  last_samplers_ = flights_.front().samplers;
  flights_.pop_front();
  scheduler_.Retire(last_result_, now_ns, events_);
  Settle();
}

void SimulatedEngine::KillWorker() {
  flights_.clear();
  row_owner_.clear();
  row_blocks_.clear();
  worker_ = MakeWorker(config_, model_);
  worker_->AttachMasks(board_);
  copier_.Die();
  copies_.clear();
  scheduler_.RequeueAll(now_ns, events_);
  EXPECT_EQ(load().free_blocks, load().total_blocks);
  Settle();
}

void SimulatedEngine::RunToEnd(int32_t depth, int32_t max_steps) {
  while (HasWork()) {
    while (SendCopy()) {
    }
    while (steps_in_flight() < depth && HasWork() && Schedule()) {
      ASSERT_GT(max_steps--, 0) << "no progress";
    }
    bool copied = FinishCopy(CopyDirection::kLoad) | FinishCopy(CopyDirection::kStore);
    copied |= SendCopy();  // a restore may just have begun
    ASSERT_TRUE(copied || steps_in_flight() > 0)
        << "live requests, and nothing to run: " << load().waiting << " waiting, " << load().running
        << " running, " << load().restoring << " restoring, " << load().free_blocks << " of "
        << load().total_blocks << " blocks to be had";
    if (steps_in_flight() > 0) Retire();
    ++now_ns;
  }
  while (steps_in_flight() > 0) Retire();
  RunCopies();
  ExpectIdle();
}

void SimulatedEngine::ExpectIdle() const {
  EXPECT_FALSE(scheduler_.HasWork());
  EXPECT_EQ(load().running, 0);
  EXPECT_EQ(load().waiting, 0);
  EXPECT_EQ(load().waiting_tokens, 0);
  EXPECT_EQ(load().tokens_in_flight, 0);
  EXPECT_EQ(load().free_blocks, load().total_blocks);
  EXPECT_EQ(scheduler_.NextDeadline(), kNoDeadline);
  for (const auto& [id, outcome] : outcomes_) EXPECT_TRUE(outcome.finished) << "request " << id;
}

void SimulatedEngine::ExpectUndisturbed(RequestId id) const {
  const ExpectedOutcome expected = Expect(id, specs_.at(id), model_, config_.max_model_len);
  EXPECT_EQ(outcome(id).tokens, expected.tokens) << "request " << id;
  EXPECT_EQ(outcome(id).finish.reason, expected.reason) << "request " << id;
}

Share SimulatedEngine::ShareOf(RequestId id) const {
  for (const Share& share : last_plan_) {
    if (share.id == id) return share;
  }
  return {};
}

// Checks the events of a call: tokens come in order and before the end, the end comes once and with
// true counts.
void SimulatedEngine::Settle() {
  if (!holds_masks) MakeMasks();
  if (++calls_ % check_every == 0) scheduler_.CheckInvariants();
  for (const TokenEvent& event : events_.tokens) {
    Outcome& outcome = outcomes_.at(event.id);
    EXPECT_FALSE(outcome.finished) << "token after the end of request " << event.id;
    EXPECT_EQ(event.cookie, reinterpret_cast<void*>(event.id));
    EXPECT_EQ(event.index, static_cast<int32_t>(outcome.tokens.size()));
    outcome.tokens.push_back(event.token);
  }
  for (const FinishEvent& event : events_.finishes) {
    Outcome& outcome = outcomes_.at(event.id);
    EXPECT_FALSE(outcome.finished) << "second end of request " << event.id;
    EXPECT_EQ(event.cookie, reinterpret_cast<void*>(event.id));
    EXPECT_EQ(event.usage.completion_tokens, static_cast<int32_t>(outcome.tokens.size()));
    EXPECT_EQ(event.usage.prompt_tokens, specs_.at(event.id).prompt_tokens);
    EXPECT_NE(event.reason, FinishReason::kNone);
    outcome.finished = true;
    outcome.finish = event;
    ended_.insert(event.id);
    // The first chunk began behind the found tokens.
    const int32_t found = event.usage.cached_tokens;
    EXPECT_EQ(found, std::max(outcome.first_start, 0)) << "request " << event.id;
    EXPECT_EQ(found, event.residency.device_tokens + event.residency.host_tokens);
    if (!specs_.at(event.id).session.empty()) EndTurn(event);
  }
  last_finishes_ = events_.finishes;
  preempted_ += events_.preempted;
  admitted_ += events_.admitted;
  events_ = {};
}

void SimulatedEngine::ReadPlan(const StepPlan& plan) {
  for (const NewRow& row : plan.new_rows) {
    row_owner_[row.row] = row.sampling.seed;
    row_blocks_[row.row].clear();
    EXPECT_EQ(row.num_prompt, specs_.at(row.sampling.seed).prompt_tokens);
  }
  Flight flight;
  std::map<BlockId, BlockId> origins;
  for (const BlockClone& clone : plan.block_clones) origins[clone.to] = clone.from;
  for (const BlockAdd& add : plan.block_adds) {
    row_blocks_[add.row].push_back(add.block);
    if (!origins.contains(add.block)) continue;
    flight.blocks.insert({origins[add.block], row_owner_.at(add.row)});
    block_tenant_[add.block] = block_tenant_[origins[add.block]];
  }
  num_clones_ += static_cast<int64_t>(plan.block_clones.size());
  for (const RowWork& work : plan.work) {
    const RequestId id = row_owner_.at(work.row);
    EXPECT_FALSE(outcomes_.at(id).finished) << "work for request " << id << " after its end";
    if (outcomes_.at(id).first_start < 0) outcomes_.at(id).first_start = work.start;
    last_plan_.push_back({id, work.start, work.count, work.sample});
    flight.rows.insert(work.row);
    for (size_t i = 0; i < row_blocks_[work.row].size(); ++i) {
      const std::pair used(row_blocks_[work.row][i], id);
      const int32_t begin = static_cast<int32_t>(i) * config_.block_size;
      if (begin < work.start + work.count) flight.blocks.insert(used);
      if (begin + config_.block_size > work.start) flight.written.insert(used);
    }
    flight.samplers.insert(flight.samplers.end(), work.sample, id);
    CheckTenant(work, specs_.at(id).tenant);
  }
  flights_.push_back(std::move(flight));
}

// No step writes a block that is being stored, or touches one that is being loaded; a tenant's page
// comes back to that tenant only.
void SimulatedEngine::CheckCopies(const CopyJob& job) {
  const bool store = job.direction == CopyDirection::kStore;
  for (const BlockCopy& copy : job.copies) {
    for (const Flight& flight : flights_) {
      const auto& used = store ? flight.written : flight.blocks;
      const auto it = used.lower_bound({copy.block, 0});
      EXPECT_FALSE(it != used.end() && it->first == copy.block)
          << "block " << copy.block << " is in flight";
    }
    if (store) {
      page_tenant_[copy.page] = block_tenant_[copy.block];
    } else {
      block_tenant_[copy.block] = page_tenant_[copy.page];
    }
  }
}

// No tenant reads a block that another one wrote, even with equal tokens.
void SimulatedEngine::CheckTenant(const RowWork& work, TenantId tenant) {
  const std::vector<int32_t>& blocks = row_blocks_[work.row];
  const int32_t end = work.start + work.count;
  for (int32_t i = 0; i * config_.block_size < end; ++i) {
    TenantId& owner = block_tenant_[blocks[i]];
    if (i * config_.block_size >= work.start) owner = tenant;
    EXPECT_EQ(owner, tenant) << "block " << blocks[i] << " of another tenant";
  }
}

// A row given to a sequence must not be in use by a step that has not retired.
void SimulatedEngine::CheckNewRowsAreFree(const StepPlan& plan) {
  for (const Flight& flight : flights_) {
    for (const NewRow& row : plan.new_rows) {
      EXPECT_FALSE(flight.rows.contains(row.row)) << "row " << row.row << " is still in flight";
    }
  }
}

// No other request may read or write the blocks that the last plan writes, or will write soon, in
// any step in flight, this one included.
void SimulatedEngine::CheckWritesAreExclusive() {
  for (const auto& [block, id] : flights_.back().written) {
    for (const Flight& flight : flights_) {
      for (auto it = flight.blocks.lower_bound({block, 0});
           it != flight.blocks.end() && it->first == block; ++it) {
        EXPECT_EQ(it->second, id) << "block " << block << " is still in flight";
      }
    }
  }
  for (const CopyJob& job : copies_) {
    const bool store = job.direction == CopyDirection::kStore;
    const auto& used = store ? flights_.back().written : flights_.back().blocks;
    for (const BlockCopy& copy : job.copies) {
      const auto it = used.lower_bound({copy.block, 0});
      EXPECT_FALSE(it != used.end() && it->first == copy.block)
          << "block " << copy.block << " is being copied";
    }
  }
}

}  // namespace quire
