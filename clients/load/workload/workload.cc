// Draws requests place by place.
#include "clients/load/workload/workload.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "clients/load/workload/arrivals.h"
#include "clients/load/workload/prompt_file.h"

namespace quire::load {
namespace {

constexpr int32_t kDefaultPrompts = 1000;
constexpr uint64_t kWarmupKeys = uint64_t{1} << 62;
// Requests whose lengths are checked against the model before the run.
constexpr int64_t kMostChecked = 100'000;

}  // namespace

bool HasConversations(const WorkloadSettings& settings) {
  return settings.turns.kind != LengthSpec::Kind::kFixed || settings.turns.a > 1;
}

Workload::Workload(const WorkloadSettings& settings, const ArrivalSettings& arrival,
                   const ModelFacts& model)
    : settings_(settings),
      arrival_(arrival),
      model_(model),
      conversations_(HasConversations(settings)) {}

absl::StatusOr<std::unique_ptr<Workload>> Workload::Create(const WorkloadSettings& settings,
                                                           const ArrivalSettings& arrival,
                                                           const ModelFacts& model) {
  std::unique_ptr<Workload> workload(new Workload(settings, arrival, model));
  if (const absl::Status status = workload->Load(); !status.ok()) return status;
  workload->PlanArrivals();
  workload->PlanPrefixes();
  if (const absl::Status status = workload->CheckFits(); !status.ok()) return status;
  return workload;
}

absl::Status Workload::Load() {
  if (model_.vocab_size <= model_.eos_token_ids.size()) {
    return absl::InvalidArgumentError("the model's vocabulary has no tokens to make prompts of");
  }
  if (!settings_.trace_file.empty()) {
    auto trace = ReadTrace(settings_.trace_file, settings_.trace_block);
    if (!trace.ok()) return trace.status();
    trace_ = *std::move(trace);
  }
  if (!settings_.prompt_file.empty()) {
    auto prompts = ReadPromptFile(settings_.prompt_file);
    if (!prompts.ok()) return prompts.status();
    prompts_ = *std::move(prompts);
  }
  return absl::OkStatus();
}

void Workload::PlanArrivals() {
  const bool paced = arrival_.ramp != Ramp::kNone || std::isfinite(arrival_.request_rate);
  const bool timed = settings_.duration_seconds > 0;
  const bool by_trace = !trace_.empty() && !paced && !IsClosedLoop(arrival_);
  const auto rows = static_cast<int64_t>(trace_.size());
  if (settings_.num_prompts > 0) {
    size_ = by_trace ? std::min<int64_t>(settings_.num_prompts, rows) : settings_.num_prompts;
  } else if (timed && paced) {
    size_ = ArrivalsWithin(arrival_, settings_.duration_seconds);
  } else if (timed && !by_trace) {
    size_ = kEndless;
  } else {
    size_ = trace_.empty() ? kDefaultPrompts : rows;
  }
  next_fork_ = static_cast<int32_t>(std::min<int64_t>(size_, 1 << 30));

  if (paced) {
    due_ns_ = ArrivalTimes(arrival_, size_, settings_.seed);
  } else if (by_trace) {
    for (int64_t i = 0; i < size_; ++i) {
      const double seconds = trace_[static_cast<size_t>(i)].arrival_seconds / arrival_.trace_speed;
      due_ns_.push_back(static_cast<int64_t>(std::llround(seconds * 1e9)));
    }
  }
  if (!timed || due_ns_.empty()) return;
  const auto end_ns = static_cast<int64_t>(settings_.duration_seconds * 1e9);
  due_ns_.erase(std::upper_bound(due_ns_.begin(), due_ns_.end(), end_ns), due_ns_.end());
  size_ = static_cast<int64_t>(due_ns_.size());
}

// As many requests for each prefix, in a shuffled order.
void Workload::PlanPrefixes() {
  if (settings_.prefix_len == 0 || settings_.num_prefixes <= 1 || size_ == kEndless) return;
  prefix_order_.resize(static_cast<size_t>(size_));
  for (size_t i = 0; i < prefix_order_.size(); ++i) {
    prefix_order_[i] = static_cast<int32_t>(i % static_cast<size_t>(settings_.num_prefixes));
  }
  Random random(settings_.seed, Draw::kPrefixOrder, 0);
  for (size_t i = prefix_order_.size(); i > 1; --i) {
    std::swap(prefix_order_[i - 1], prefix_order_[random.Below(i)]);
  }
}

absl::Status Workload::CheckFits() const {
  if (settings_.clip_to_context) return absl::OkStatus();
  for (int64_t i = 0; i < std::min(size_, kMostChecked); ++i) {
    const Lengths lengths = LengthsOf(static_cast<uint64_t>(i));
    const int64_t total = int64_t{settings_.prefix_len} + lengths.input + lengths.output;
    if (total > model_.max_model_len) {
      return absl::InvalidArgumentError(
          absl::StrCat("request ", i, " of the workload has ", settings_.prefix_len + lengths.input,
                       " tokens of prompt and asks for ", lengths.output, ", but the model ",
                       model_.name, " holds ", model_.max_model_len,
                       " together; ask for less, or shorten with --clip-to-context"));
    }
  }
  return absl::OkStatus();
}

int64_t Workload::DueNs(int64_t i) const {
  return due_ns_.empty() ? 0 : due_ns_[static_cast<size_t>(i)];
}

Lengths Workload::LengthsOf(uint64_t key) const {
  if (!trace_.empty()) {
    const TraceRow& row = trace_[key % trace_.size()];
    return {row.input_length, row.output_length};
  }
  Random random(settings_.seed, Draw::kLengths, key);
  Lengths lengths;
  if (settings_.length_table.empty()) {
    lengths.input = random.Length(settings_.input_len, 1);
    lengths.output = random.Length(settings_.output_len, 1);
  } else {
    lengths = DrawFromTable(settings_.length_table, random);
  }
  if (!prompts_.empty()) lengths.input = 0;  // the text's length is known to the server only
  return lengths;
}

// Shortens the part, prompt or answer, that is longer than half of the context.
Lengths Workload::Clipped(Lengths lengths) const {
  if (!settings_.clip_to_context) return lengths;
  const int32_t context = std::max(model_.max_model_len, 2);
  lengths.output = std::min(lengths.output, context - std::min(lengths.input, context / 2));
  lengths.input = std::min(lengths.input, context - lengths.output);
  return lengths;
}

PlannedRequest Workload::Request(int64_t i) const {
  PlannedRequest request = Draw(static_cast<uint64_t>(i));
  request.due_ns = DueNs(i);
  request.family = i;
  if (conversations_) {
    Random random(settings_.seed, Draw::kConversation, request.key);
    request.conversation = static_cast<int32_t>(i & 0x3fffffff);
    request.turns = random.Length(settings_.turns, 1);
    request.session = SessionOf(request.conversation);
  }
  DrawTraits(&request);
  return request;
}

PlannedRequest Workload::Warmup(int64_t i) const {
  PlannedRequest request = Draw(kWarmupKeys + static_cast<uint64_t>(i));
  request.warmup = true;
  return request;
}

PlannedRequest Workload::Draw(uint64_t key) const {
  PlannedRequest request;
  request.key = key;
  Lengths lengths = LengthsOf(key);
  if (prompts_.empty()) {
    lengths.input += settings_.prefix_len;
    lengths = Clipped(lengths);
    DrawPrompt(key, lengths.input, &request);
  } else {
    request.text = prompts_[key % prompts_.size()];
  }
  request.max_tokens = lengths.output;
  request.sampling_seed = Mix(settings_.seed, Draw::kSampling, key);
  return request;
}

void Workload::DrawPrompt(uint64_t key, int32_t length, PlannedRequest* request) const {
  std::vector<uint32_t>& ids = request->token_ids;
  const auto wanted = static_cast<size_t>(length);
  ids.reserve(wanted);
  if (settings_.prefix_len > 0) {
    Random shared(settings_.seed, Draw::kPrefix, static_cast<uint64_t>(PrefixOf(key)));
    AppendTokens(shared, std::min(settings_.prefix_len, length), &ids);
  }
  if (!trace_.empty()) {
    for (const int64_t block : trace_[key % trace_.size()].hash_ids) {
      Random random(settings_.seed, Draw::kTraceBlock, static_cast<uint64_t>(block));
      const auto left = static_cast<int64_t>(wanted - ids.size());
      AppendTokens(random, std::min<int64_t>(settings_.trace_block, left), &ids);
    }
  }
  Random own(settings_.seed, Draw::kPrompt, key);
  AppendTokens(own, static_cast<int64_t>(wanted - ids.size()), &ids);
}

int64_t Workload::PrefixOf(uint64_t key) const {
  if (key < prefix_order_.size()) return prefix_order_[key];
  if (settings_.num_prefixes <= 1) return 0;
  Random random(settings_.seed, Draw::kPrefixOrder, key);
  return static_cast<int64_t>(random.Below(static_cast<uint64_t>(settings_.num_prefixes)));
}

void Workload::AppendTokens(Random& random, int64_t count, std::vector<uint32_t>* ids) const {
  const std::vector<uint32_t>& eos = model_.eos_token_ids;
  for (int64_t i = 0; i < count;) {
    const auto id = static_cast<uint32_t>(random.Below(model_.vocab_size));
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) continue;
    ids->push_back(id);
    ++i;
  }
}

void Workload::DrawTraits(PlannedRequest* request) const {
  Random random(settings_.seed, Draw::kTraits, request->key);
  // Draws every number, also for traits that are off, so that one trait does not change another.
  const double priority = random.Uniform(), deadline = random.Uniform();
  const double deadline_at = random.Uniform(), cancel = random.Uniform(), slow = random.Uniform();
  double weights = 0;
  for (const auto& [value, weight] : settings_.priorities) weights += weight;
  double passed = 0;
  for (const auto& [value, weight] : settings_.priorities) {
    request->priority = value;
    passed += weight;
    if (priority * weights < passed) break;
  }
  if (deadline < settings_.deadline_share) {
    const Range& range = settings_.deadline_seconds;
    request->deadline_seconds = range.low + (range.high - range.low) * deadline_at;
  }
  if (cancel < settings_.cancel_share) {
    request->cancel_after = random.Length(settings_.cancel_after, 1);
  }
  request->slow_reader = slow < settings_.slow_share;
}

std::string Workload::SessionOf(int32_t conversation) const {
  if (settings_.session_prefix.empty()) return "";
  return absl::StrCat(settings_.session_prefix, conversation);
}

std::vector<PlannedRequest> Workload::NextTurns(const PlannedRequest& ended,
                                                const std::vector<uint32_t>& received,
                                                int64_t end_ns) {
  std::vector<PlannedRequest> next;
  if (ended.turn + 1 >= ended.turns) return next;
  const uint64_t way = Mix(ended.key, Draw::kTurn, static_cast<uint64_t>(ended.turn));
  Random fork(settings_.seed, Draw::kTurn, way);
  const int branches = fork.Uniform() < settings_.fork_probability ? 2 : 1;
  for (int branch = 0; branch < branches; ++branch) {
    PlannedRequest turn;
    turn.key = Mix(way, Draw::kTurn, static_cast<uint64_t>(branch)) | (uint64_t{1} << 63);
    turn.conversation = branch == 0 ? ended.conversation : next_fork_++;
    turn.family = ended.family;
    turn.turn = ended.turn + 1;
    turn.turns = ended.turns;
    Random random(settings_.seed, Draw::kTurn, turn.key);
    const double think =
        settings_.think_seconds_median * std::exp(settings_.think_sigma * random.Normal());
    turn.due_ns = end_ns + static_cast<int64_t>(think * 1e9);
    const int32_t added = random.Length(settings_.turn_input_len, 1);
    turn.max_tokens = LengthsOf(turn.key).output;
    turn.sampling_seed = Mix(settings_.seed, Draw::kSampling, turn.key);
    turn.session = SessionOf(turn.conversation);
    if (turn.session.empty()) {
      turn.token_ids.reserve(ended.token_ids.size() + received.size() + static_cast<size_t>(added));
      turn.token_ids = ended.token_ids;
      turn.token_ids.insert(turn.token_ids.end(), received.begin(), received.end());
    } else {
      if (branch > 0) turn.fork_of = ended.session;
      turn.position =
          ended.position + static_cast<int32_t>(ended.token_ids.size() + received.size());
    }
    AppendTokens(random, added, &turn.token_ids);
    const auto total =
        turn.position + static_cast<int64_t>(turn.token_ids.size()) + turn.max_tokens;
    if (total > model_.max_model_len) return {};
    DrawTraits(&turn);
    next.push_back(std::move(turn));
  }
  return next;
}

}  // namespace quire::load
