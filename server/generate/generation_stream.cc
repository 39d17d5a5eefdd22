// The state machine of one live call. Every transition sets state under the lock and leaves the
// acting to Pump, so that the transport is only ever called unlocked, by one thread at a time.
#include "server/generate/generation_stream.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/values/admission.h"
#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/turn_archive.h"
#include "server/generate/refusals.h"
#include "server/generate/request_codec.h"
#include "server/generate/request_log.h"
#include "server/generate/request_timeline.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/metrics/metrics.h"

namespace quire {
namespace {

// A delta's memory up to this size is reused for the next one.
constexpr int64_t kKeptBytes = 2048;
// Around the texts of a tool call's message: tags, lengths and the index.
constexpr size_t kCallBytes = 32;
// How long the transport may take to end a call that was reset.
constexpr int64_t kResetNs = 5'000'000'000;

bool IsStopId(const SamplingParams& sampling, int32_t token) {
  const auto holds = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return holds(sampling.eos_token_ids) || holds(sampling.stop_token_ids);
}

absl::Status AbortedStatus() {
  return Refusal(absl::StatusCode::kCancelled, "ABORTED", "the request was ended by Control.Abort");
}

bool IsDeadline(const absl::Status& status) { return absl::IsDeadlineExceeded(status); }

}  // namespace

// A score's message takes at most 16 bytes more than its words (generate_frames.cc).
int64_t OutputDelta::bytes() const {
  size_t of_calls = 0;
  for (const ToolCallPart& call : calls) {
    of_calls += kCallBytes + call.id.size() + call.name.size() + call.arguments.size();
  }
  const size_t of_scores = scores.empty() ? 0 : scores.size() * sizeof(uint32_t) + tokens * 16;
  return static_cast<int64_t>(token_ids.size() * sizeof(uint32_t) +
                              logprobs.size() * sizeof(float) + text.size() + reasoning.size() +
                              of_calls + of_scores);
}

int64_t OutputDelta::reply_bytes() const {
  constexpr size_t kFewestWords = ScoreWords(0, 0);
  return bytes() + static_cast<int64_t>(prompt_scores.size() * sizeof(uint32_t) +
                                        prompt_scores.size() / kFewestWords * 16 +
                                        pooled.size() * sizeof(float));
}

void OutputDelta::Append(OutputDelta& from) {
  token_ids.insert(token_ids.end(), from.token_ids.begin(), from.token_ids.end());
  logprobs.insert(logprobs.end(), from.logprobs.begin(), from.logprobs.end());
  text += from.text;
  reasoning += from.reasoning;
  for (ToolCallPart& call : from.calls) AppendCall(std::move(call), &calls);
  scores.insert(scores.end(), from.scores.begin(), from.scores.end());
  if (!from.prompt_scores.empty()) prompt_scores = std::move(from.prompt_scores);
  if (!from.pooled.empty()) pooled = std::move(from.pooled);
  tokens += from.tokens;
  cumulative += from.tokens;
  from.Clear();
}

void OutputDelta::Take(AnswerParts parts) {
  text += parts.text;
  reasoning += parts.reasoning;
  for (ToolCallPart& call : parts.calls) AppendCall(std::move(call), &calls);
}

void OutputDelta::Clear() {
  // Memory that one burst needed is not kept for the rest of a stream's life.
  if (reply_bytes() > kKeptBytes) *this = OutputDelta{.cumulative = cumulative};
  token_ids.clear();
  logprobs.clear();
  text.clear();
  reasoning.clear();
  calls.clear();
  scores.clear();
  prompt_scores.clear();
  pooled.clear();
  tokens = 0;
}

GenerationStream::GenerationStream(const GenerateResources* resources, StreamOutlet* outlet,
                                   Shape shape, const Origin& origin,
                                   std::unique_ptr<RequestTrace> trace)
    : resources_(resources),
      shape_(shape),
      origin_(origin),
      arrival_ns_(SteadyNowNs()),
      id_(resources->streams.NextId()),
      trace_(std::move(trace)),
      stop_mark_(origin.deadline_ns),
      outlet_(outlet) {
  if (trace_ != nullptr) trace_->Arrived(arrival_ns_);
}

GenerationStream::~GenerationStream() = default;

absl::Status GenerationStream::Claim(const std::string& request_id) {
  request_id_ = request_id;
  // A client may have chosen an id that the server makes up: then the server makes another.
  absl::Status claimed = absl::AlreadyExistsError("");
  for (uint64_t key = resources_->key; absl::IsAlreadyExists(claimed); ++key) {
    if (request_id.empty()) request_id_ = MakeRequestId(key, id_);
    claimed = resources_->streams.Claim(request_id_, shared_from_this());
    if (!request_id.empty()) break;
  }
  RETURN_IF_ERROR(absl::IsCancelled(claimed) ? AbortedStatus() : claimed);
  std::lock_guard lock(mutex_);
  claimed_ = true;
  return absl::OkStatus();
}

void GenerationStream::Join(const GenerationStream& first) {
  request_id_ = first.request_id_;
  resources_->streams.Join(request_id_, shared_from_this());
  std::lock_guard lock(mutex_);
  claimed_ = true;
}

absl::Status GenerationStream::Prepare(Request& request, const OutputOptions& output) {
  is_turn_ = request.session_turn.has_value();
  if (is_turn_) session_ = request.session_turn->session;
  if (!is_turn_) {
    const absl::Status fits = FitToContext(ContextLimitOf(resources_->model), request);
    if (!fits.ok()) return FromEngine(fits, resources_->drain, resources_->engine);
  }
  RETURN_IF_ERROR(CheckReadings(request, resources_->calls.options.max_reply_bytes));
  request.id = id_;
  request.cookie = this;
  request.tenant = tenant();
  request.arrival_ns = arrival_ns_;
  request.deadline_ns = origin_.deadline_ns;
  sampling_ = request.sampling;
  output_ = output;
  output_.reading = request.reading;
  output_.max_guesses = request.max_guesses;
  if (output_.text || !sampling_.stop.empty()) {
    detokenizer_.emplace(resources_->model.tokenizer.get(),
                         Detokenizer::Options{sampling_.stop, sampling_.include_stop_in_output,
                                              output_.skip_special_tokens, output_.answer.marks});
  }
  if (output_.text && output_.answer.reads()) {
    reader_.emplace(output_.answer, resources_->key ^ id_);
  }
  queue_position_ = resources_->engine.Stats().load.waiting;
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(end_);  // cancelled on the way here
    prompt_tokens_ = static_cast<int32_t>(request.prompt.size());
  }
  if (trace_ != nullptr) trace_->Submitted(request, request_id_, SteadyNowNs());
  until_finish_ = shared_from_this();
  return absl::OkStatus();
}

void GenerationStream::Submitted(const absl::Status& status, int64_t predicted_ttft_ns) {
  if (!status.ok()) {
    until_finish_.reset();
    return Refuse(FromEngine(status, resources_->drain, resources_->engine));
  }
  std::unique_lock lock(mutex_);
  submitted_ = true;
  if (!is_turn_) Accept(prompt_tokens_, sampling_.max_tokens, predicted_ttft_ns);
  // A cancel that came before this line did not reach the engine.
  if (!end_.ok())
    CancelInEngine(IsDeadline(end_) ? FinishReason::kDeadline : FinishReason::kCancelled);
  Pump(std::move(lock));
}

void GenerationStream::TakeStart(const TurnStart& start) {
  absl::Status refusal;
  if (!start.status.ok()) {
    refusal = FromEngine(start.status, resources_->drain, resources_->engine);
    resources_->calls.metrics.RequestRejected(static_cast<int>(refusal.code()));
    LogRefused(resources_->calls.options, caller(), refusal);
  }
  std::unique_lock lock(mutex_);
  if (refusal.ok()) {
    Accept(start.prompt_tokens, start.max_tokens, start.predicted_ttft_ns);
  } else {
    refused_ = true;
    End(refusal);
  }
  Pump(std::move(lock));
}

void GenerationStream::Accept(int32_t prompt_tokens, int32_t max_tokens,
                              int64_t predicted_ttft_ns) {
  predicted_ttft_ns_ = predicted_ttft_ns;
  accepted_ = true;
  prompt_tokens_ = prompt_tokens;
  max_tokens_ = max_tokens;
}

void GenerationStream::Refuse(const absl::Status& status) {
  std::unique_lock lock(mutex_);
  if (!end_.ok()) return Pump(std::move(lock));  // the client left before
  resources_->calls.metrics.RequestRejected(static_cast<int>(status.code()));
  LogRefused(resources_->calls.options, caller(), status);
  End(status);
  Pump(std::move(lock));
}

void GenerationStream::WriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  in_flight_bytes_ = 0;
  if (!ok && !ended_) {
    End(StatusOf(FinishReason::kCancelled));
    CancelInEngine(FinishReason::kCancelled);
  }
  // Waits until most of it is read: each pause makes the engine compute the known tokens again.
  if (paused_ && pending_.bytes() <= resources_->calls.options.stream_buffer_bytes / streams_ / 8) {
    paused_.reset();
    resources_->engine.SetPaused(id_, false);
  }
  Pump(std::move(lock));
}

void GenerationStream::Cancelled() {
  const FinishReason reason =
      SteadyNowNs() >= origin_.deadline_ns ? FinishReason::kDeadline : FinishReason::kCancelled;
  std::unique_lock lock(mutex_);
  if (ended_) return;
  End(StatusOf(reason));
  CancelInEngine(reason);
  Pump(std::move(lock));
}

void GenerationStream::Abort(absl::Status why) {
  if (why.ok()) why = AbortedStatus();
  std::unique_lock lock(mutex_);
  if (ended_) {
    lock.unlock();
    if (keeper_ != nullptr) keeper_->Drop(why);
    return;
  }
  End(why);
  CancelInEngine(FinishReason::kCancelled);
  Pump(std::move(lock));
}

void GenerationStream::Closed() {
  {
    std::lock_guard lock(outlet_mutex_);
    outlet_ = nullptr;
  }
  resources_->stalls.Forget(this);
}

int64_t GenerationStream::CheckStall(int64_t now_ns) {
  if (keeper_ != nullptr) return keeper_->Check(now_ns);
  const int64_t timeout_ns = resources_->stalls.timeout_ns();
  std::unique_lock lock(mutex_);
  if (!writing_ && !ended_) return now_ns + timeout_ns;
  if (now_ns - busy_since_ns_ < timeout_ns) return busy_since_ns_ + timeout_ns;
  if (!ended_) {
    Shed();
    Pump(std::move(lock));
    return now_ns + timeout_ns;
  }
  // Even the status could not be delivered: the peer has stopped reading altogether.
  lock.unlock();
  std::lock_guard outlet_lock(outlet_mutex_);
  if (outlet_ == nullptr) return now_ns + timeout_ns;
  // A reset waits for a write that the peer's full socket blocks. Such a connection is of no use
  // to its other streams either.
  if (std::exchange(reset_, true)) {
    resources_->calls.connections.Cut(origin_.slot, "its peer has stopped reading");
  } else {
    outlet_->Reset();
  }
  return now_ns + std::min(timeout_ns, kResetNs);
}

void GenerationStream::TakeReading(const StepReading& reading, std::span<const uint32_t> words) {
  readings_.Take(reading, words);
}

void GenerationStream::TakeToken(int32_t token, float logprob, int64_t now_ns) {
  if (text_done_ || overrun_.load(std::memory_order_relaxed)) return;
  ServerMetrics& metrics = resources_->calls.metrics;
  if (last_token_ns_ != 0) {
    metrics.InterTokenLatency(static_cast<double>(now_ns - last_token_ns_) * 1e-9);
  } else {
    metrics.FirstToken(static_cast<double>(now_ns - arrival_ns_) * 1e-9);
    readings_.TakePrompt(gathered_.prompt_scores, gathered_.pooled);
  }
  last_token_ns_ = now_ns;
  ++delivered_;
  logprob_sum_ += logprob;
  ++gathered_.tokens;
  if (output_.token_ids) gathered_.token_ids.push_back(static_cast<uint32_t>(token));
  if (sampling_.logprobs) gathered_.logprobs.push_back(logprob);
  if (output_.reading.of_output()) readings_.TakeDrawn(gathered_.scores);
  // A token that ends the sequence is part of the ids, never of the text.
  if (detokenizer_.has_value() && !IsStopId(sampling_, token)) {
    std::string text;
    text_done_ = detokenizer_->Push(token, &text, delivered_ >= sampling_.min_tokens);
    if (text_done_) resources_->engine.Cancel(id_, FinishReason::kStopText, delivered_);
    AddText(text, /*last=*/false);
  }
  const bool holds_text = (detokenizer_ && detokenizer_->holds()) || (reader_ && reader_->holds());
  if (keeper_ != nullptr) keeper_->Keep(gathered_, holds_text);
}

void GenerationStream::AddText(const std::string& text, bool last) {
  if (!reader_.has_value()) {
    if (output_.text) gathered_.text += text;
    return;
  }
  last ? reader_->Finish(text) : reader_->Push(text);
  gathered_.Take(reader_->Take());
}

void GenerationStream::TakeFinish(FinishEvent event, int64_t now_ns) {
  if (text_done_) {
    // The cancel that TakeToken sent cuts the session too, even after the turn's end.
    event.position = std::min(event.position, event.usage.prompt_tokens + delivered_);
    event.reason = FinishReason::kStopText;
    event.timings.last_token_ns = last_token_ns_;
  }
  if (IsRegularEnd(event.reason)) {
    std::string text;  // that was held back and turns out to be part of no mark
    if (!text_done_ && detokenizer_.has_value()) detokenizer_->Flush(&text);
    AddText(text, /*last=*/true);
    if (keeper_ != nullptr && gathered_.has_text()) keeper_->Keep(gathered_, /*holds_text=*/false);
  }
  event.usage.completion_tokens = delivered_;
  const int32_t max_tokens = is_turn_ ? max_tokens_ : sampling_.max_tokens;
  resources_->calls.metrics.RequestFinished(event, max_tokens);
  if (trace_ != nullptr) trace_->Finished(event, max_tokens);
  gathered_finish_ = event;
  std::unique_lock lock(mutex_);
  if (cancel_ns_ != 0) {
    resources_->calls.metrics.CancelToEnd(static_cast<double>(now_ns - cancel_ns_) * 1e-9);
  }
  const absl::Status end = end_;
  // A turn whose end the client has seen is there after a restart, so the directory has it first.
  const bool saving = resources_->archive != nullptr && is_turn_ && IsRegularEnd(event.reason);
  saving_ = saving;
  lock.unlock();
  if (saving) {
    resources_->archive->AfterTurn(tenant(), session_, text_done_,
                                   [self = shared_from_this()] { self->Archived(); });
  }
  LogFinished(resources_->calls.options,
              {request_id_, caller(), session_, trace_ ? trace_->trace_id() : "", event, end});
  DrawRequest(request_id_, event);
}

void GenerationStream::Archived() {
  std::unique_lock lock(mutex_);
  saving_ = false;
  Pump(std::move(lock));
}

void GenerationStream::Flush() {
  if (keeper_ != nullptr) keeper_->Show();
  std::unique_lock lock(mutex_);
  pending_.Append(gathered_);
  if (gathered_finish_.has_value()) finish_ = gathered_finish_;
  if (!end_.ok() || ended_) return pending_.Clear();
  const int64_t bound = resources_->calls.options.stream_buffer_bytes / streams_;
  const int64_t unsent = pending_.bytes() + in_flight_bytes_;
  if (overrun_.load(std::memory_order_relaxed)) {
    Shed();
  } else if (paused_ && unsent > *paused_ + bound / 2) {
    Shed();
  } else if (shape_ == Shape::kStream && writing_ && unsent > bound / 2 && !paused_) {
    paused_ = unsent;
    resources_->calls.metrics.StreamPaused();
    resources_->engine.SetPaused(id_, true);
  } else if (shape_ != Shape::kStream) {
    // Checked as the reply grows: tokens beyond the limit cannot be delivered.
    const absl::Status fits = outlet_->CheckSize(pending_.reply_bytes());
    if (!fits.ok()) {
      End(fits);
      CancelInEngine(FinishReason::kCancelled);
    }
  }
  Pump(std::move(lock));
}

void GenerationStream::End(const absl::Status& status) {
  if (end_.ok()) end_ = status;
  stop_mark_.Raise();
  pending_.Clear();
}

void GenerationStream::Shed() {
  shed_ = true;
  resources_->calls.metrics.StreamShed();
  End(StatusOf(FinishReason::kSlowReader));
  CancelInEngine(FinishReason::kSlowReader);
}

void GenerationStream::CancelInEngine(FinishReason reason) {
  if (!submitted_ || refused_ || finish_.has_value() || cancel_ns_ != 0) return;
  cancel_ns_ = SteadyNowNs();
  resources_->engine.Cancel(id_, reason);
}

// A step that writes output takes the delta out of pending_.
GenerationStream::Step GenerationStream::NextStep(OutputDelta* delta) {
  if (ended_ || starting_ || (writing_ && !shed_)) return Step::kNothing;
  if (end_.ok()) {
    // The engine may be ahead of the thread that submits.
    if (!submitted_ || !accepted_) return Step::kNothing;
    if (shape_ != Shape::kUnary && !accepted_sent_) {
      accepted_sent_ = true;
      return Step::kAccepted;
    }
    if (shape_ == Shape::kStream && (pending_.tokens > 0 || pending_.has_text())) {
      std::swap(*delta, pending_);
      pending_.cumulative = delta->cumulative;
      return Step::kTokens;
    }
    if (!finish_.has_value() || saving_) return Step::kNothing;
    end_ = StatusOf(finish_->reason);
  }
  ended_ = true;
  // Before the client can know of the end: it may use the id again at once.
  if (claimed_ && keeper_ == nullptr) resources_->streams.Release(request_id_, *this);
  if (!end_.ok()) return Step::kFail;
  std::swap(*delta, pending_);
  return Step::kEnd;
}

void GenerationStream::Pump(std::unique_lock<std::mutex> lock) {
  // Its memory is reused by all streams of a thread: an outlet copies it before anything can come
  // back to this thread.
  static thread_local OutputDelta delta;
  for (;;) {
    delta.Clear();
    const Step step = NextStep(&delta);
    if (step == Step::kNothing) return;
    busy_since_ns_ = SteadyNowNs();
    const bool last = step == Step::kEnd || step == Step::kFail;
    if (!last) {
      writing_ = starting_ = true;
      in_flight_bytes_ = delta.bytes();
    }
    const absl::Status status = end_;
    lock.unlock();
    Send(step, delta, status);
    if (last) return;
    lock.lock();
    starting_ = false;
  }
}

// The outlet lives at least until WriteEnd or Fail, and those are decided once. The members that
// are read here do not change once a step was decided.
void GenerationStream::Send(Step step, const OutputDelta& delta, const absl::Status& status) {
  if (step == Step::kFail) return outlet_->Fail(status);
  if (step == Step::kTokens) return outlet_->WriteTokens(delta, output_);
  const AcceptedFrame accepted{.request_id = request_id_,
                               .sampling = sampling_,
                               .output = output_,
                               .prompt_tokens = prompt_tokens_,
                               .max_tokens = max_tokens_,
                               .queue_position = queue_position_,
                               .predicted_ttft_ns = predicted_ttft_ns_};
  if (step == Step::kAccepted) return outlet_->WriteAccepted(accepted);
  const int stop = detokenizer_.has_value() ? detokenizer_->matched_stop() : -1;
  const std::string stop_text = stop < 0 ? "" : sampling_.stop[static_cast<size_t>(stop)];
  outlet_->WriteEnd({.accepted = accepted,
                     .rest = delta,
                     .finish = *finish_,
                     .stop_text = stop_text,
                     .logprob_sum = logprob_sum_,
                     .tally = reader_.has_value() ? reader_->tally() : AnswerTally()});
}

}  // namespace quire
