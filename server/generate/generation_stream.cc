// The state machine of one live call. Every transition sets state under the lock and leaves the
// acting to Pump, so that the transport is only ever called unlocked, by one thread at a time.
#include "server/generate/generation_stream.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_store.h"
#include "quire/v1/inference.pb.h"
#include "server/call/connection_table.h"
#include "server/call/serial_thread.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/generate/request_log.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"

namespace quire {
namespace {

// A delta's memory up to this size is reused for the next one.
constexpr int64_t kKeptBytes = 2048;
// All of a GenerateResult but its output: 16 stop strings of 256 bytes, 1024 biases and 64 ids of
// at most 14 each, and some numbers. The output itself takes no more than Delta::bytes says: ids of
// a vocabulary below 2^28 are varints of at most 4 bytes.
constexpr int64_t kReplyHeadBytes = 64 << 10;
// How long the transport may take to end a call that was reset.
constexpr int64_t kResetNs = 5'000'000'000;

// Names the request in logs and Abort when its client did not. The key differs between processes,
// so that ids of two servers do not meet in one log.
std::string MakeRequestId(uint64_t key, RequestId id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "q";
  for (int shift = 28; shift >= 0; shift -= 4) name += kDigits[(key >> shift) & 15];
  return name + "-" + std::to_string(id);
}

// What the engine says when it refuses, in the words of docs/errors.md.
absl::Status RefusedByEngine(const absl::Status& status, const StreamHost& host) {
  const std::string message(status.message().data(), status.message().size());
  if (absl::IsInvalidArgument(status)) return InvalidField("prompt", message);
  const char* reason = "QUEUE_FULL";
  if (host.draining.load(std::memory_order_relaxed)) {
    reason = "DRAINING";
  } else if (!host.engine->Stats().fault.empty()) {
    reason = "ENGINE_FAULT";
  }
  return Refusal(status.code(), reason, message, 1);
}

bool IsDeadline(const absl::Status& status) { return absl::IsDeadlineExceeded(status); }

}  // namespace

int64_t GenerationStream::Delta::bytes() const {
  return static_cast<int64_t>(token_ids.size() * sizeof(uint32_t) +
                              logprobs.size() * sizeof(float) + text.size());
}

void GenerationStream::Delta::Append(Delta& from) {
  token_ids.insert(token_ids.end(), from.token_ids.begin(), from.token_ids.end());
  logprobs.insert(logprobs.end(), from.logprobs.begin(), from.logprobs.end());
  text += from.text;
  tokens += from.tokens;
  from.Clear();
}

void GenerationStream::Delta::Clear() {
  // What one burst needed is not kept for the rest of a stream's life.
  if (bytes() > kKeptBytes) *this = Delta();
  token_ids.clear();
  logprobs.clear();
  text.clear();
  tokens = 0;
}

GenerationStream::GenerationStream(StreamHost* host, StreamOutlet* outlet, Shape shape,
                                   const Caller& caller)
    : host_(host),
      shape_(shape),
      caller_(caller),
      arrival_ns_(SteadyNowNs()),
      id_(host->table->NextId()),
      outlet_(outlet) {}

GenerationStream::~GenerationStream() = default;

absl::Status GenerationStream::Take(GenerationAsk ask) {
  ask_ = std::move(ask);
  request_id_ = ask_.request_id;
  // A client may have chosen what the server would make up: then it makes up another.
  absl::Status claimed = absl::AlreadyExistsError("");
  for (uint64_t key = host_->seed_key; absl::IsAlreadyExists(claimed); ++key) {
    if (ask_.request_id.empty()) request_id_ = MakeRequestId(key, id_);
    claimed = host_->table->Claim(request_id_, shared_from_this());
    if (!ask_.request_id.empty()) break;
  }
  RETURN_IF_ERROR(claimed);
  std::lock_guard lock(mutex_);
  claimed_ = true;
  return absl::OkStatus();
}

std::unique_ptr<Request> GenerationStream::MakeRequest() {
  auto request = std::make_unique<Request>();
  request->id = id_;
  request->cookie = this;
  request->prompt = std::move(ask_.prompt);
  request->sampling = ask_.sampling;
  request->tenant = caller_.tenant;
  request->bypass_cache = ask_.bypass_cache;
  request->turn = turn_;
  request->priority = ask_.priority;
  request->arrival_ns = arrival_ns_;
  request->deadline_ns = caller_.deadline_ns;
  return request;
}

void GenerationStream::Submit() {
  const absl::Status status = TokenizePrompt(*host_->model, &ask_);
  if (!status.ok()) return Refuse(status);
  if (ask_.session_id.empty()) return SubmitPrompt({});
  BeginTurn();
}

void GenerationStream::BeginTurn() {
  {
    std::lock_guard lock(mutex_);
    if (!end_.ok()) return;  // cancelled while its prompt was tokenised
  }
  host_->engine->Ask([self = shared_from_this()](SessionStore& sessions, int64_t now_ns) {
    absl::StatusOr<TurnStart> start = self->OpenTurn(sessions, now_ns);
    self->host_->session_thread->Post([self, start = std::move(start)]() mutable {
      if (!start.ok()) return self->Refuse(start.status());
      self->turn_ = start->turn;
      self->SubmitPrompt(std::move(start->tokens));
    });
  });
}

absl::StatusOr<TurnStart> GenerationStream::OpenTurn(SessionStore& sessions, int64_t now_ns) {
  const auto begin = [&] {
    return sessions.BeginTurn(caller_.tenant, ask_.session_id, ask_.expected_position, now_ns);
  };
  absl::StatusOr<TurnStart> start = begin();
  if (absl::IsNotFound(start.status()) && ask_.create_session) {
    const auto created = sessions.Create(caller_.tenant, ask_.session_id, {}, now_ns);
    if (!created.ok()) return FromStore(created.status());
    start = begin();
    created_session_ = start.ok();
    if (!start.ok()) sessions.Close(caller_.tenant, ask_.session_id).IgnoreError();
  }
  if (start.ok()) return start;
  std::optional<int32_t> position;
  if (IsReason(start.status(), "WRONG_POSITION")) {
    const auto session = sessions.Get(caller_.tenant, ask_.session_id);
    position = session.ok() ? session->position : 0;
  }
  return FromStore(start.status(), "expected_position", position);
}

void GenerationStream::AbandonTurn() {
  if (turn_ == 0) return;
  host_->engine->Ask([turn = std::exchange(turn_, 0), tenant = caller_.tenant,
                      unborn = created_session_ ? ask_.session_id : SessionName()](
                         SessionStore& sessions, int64_t now_ns) {
    sessions.AbortTurn(turn, now_ns);
    if (!unborn.empty()) sessions.Close(tenant, unborn).IgnoreError();
  });
}

void GenerationStream::SubmitPrompt(std::vector<int32_t> session_tokens) {
  const absl::Status fits = FitPrompt(*host_->model, std::move(session_tokens), &ask_);
  if (!fits.ok()) return Refuse(fits);
  if (ask_.send_text || !ask_.sampling.stop.empty()) {
    detokenizer_.emplace(
        host_->model->tokenizer.get(),
        Detokenizer::Options{ask_.sampling.stop, ask_.sampling.include_stop_in_output,
                             ask_.skip_special_tokens});
  }
  auto message = std::make_unique<v1::Accepted>();
  EncodeAccepted(ask_, host_->model->name, host_->engine->Stats().load.waiting, message.get());
  std::unique_ptr<Request> request = MakeRequest();
  {
    std::lock_guard lock(mutex_);
    if (!end_.ok()) return AbandonTurn();  // cancelled on the way here
    accepted_message_ = std::move(message);
  }
  until_finish_ = shared_from_this();
  const absl::Status status = host_->engine->Submit(std::move(request));
  if (!status.ok()) {
    until_finish_.reset();
    return Refuse(RefusedByEngine(status, *host_));
  }
  std::unique_lock lock(mutex_);
  accepted_ = true;
  // A cancel that came before this line did not reach the engine.
  if (!end_.ok())
    CancelInEngine(IsDeadline(end_) ? FinishReason::kDeadline : FinishReason::kCancelled);
  Pump(std::move(lock));
}

void GenerationStream::Refuse(const absl::Status& status) {
  AbandonTurn();  // before the client can know: it may send the turn again at once
  host_->metrics->RequestRejected(static_cast<int>(status.code()));
  LogRefused(host_->options, caller_.tenant, status);
  std::unique_lock lock(mutex_);
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
  // Not before most of it is read: a pause costs the computation of what was known.
  if (paused_ && pending_.bytes() <= host_->options.stream_buffer_bytes / 8) {
    paused_ = false;
    host_->engine->SetPaused(id_, false);
  }
  Pump(std::move(lock));
}

void GenerationStream::Cancelled() {
  const FinishReason reason =
      SteadyNowNs() >= caller_.deadline_ns ? FinishReason::kDeadline : FinishReason::kCancelled;
  std::unique_lock lock(mutex_);
  if (ended_) return;
  End(StatusOf(reason));
  CancelInEngine(reason);
  Pump(std::move(lock));
}

void GenerationStream::Abort() {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  End(Refusal(absl::StatusCode::kCancelled, "ABORTED", "the request was ended by Control.Abort"));
  CancelInEngine(FinishReason::kCancelled);
  Pump(std::move(lock));
}

void GenerationStream::Closed() {
  {
    std::lock_guard lock(outlet_mutex_);
    outlet_ = nullptr;
  }
  host_->stalls->Forget(this);
}

int64_t GenerationStream::CheckStall(int64_t now_ns) {
  const int64_t timeout_ns = host_->stalls->timeout_ns();
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
  // A reset waits behind a write that the peer's full socket blocks. Such a connection is of no use
  // to its other streams either.
  if (std::exchange(reset_, true)) {
    host_->connections->Cut(caller_.port, "its peer has stopped reading");
  } else {
    outlet_->Reset();
  }
  return now_ns + std::min(timeout_ns, kResetNs);
}

bool GenerationStream::IsStopId(int32_t token) const {
  const auto holds = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return holds(ask_.sampling.eos_token_ids) || holds(ask_.sampling.stop_token_ids);
}

void GenerationStream::TakeToken(int32_t token, float logprob, int64_t now_ns) {
  if (text_done_ || overrun_.load(std::memory_order_relaxed)) return;
  if (last_token_ns_ != 0) {
    host_->metrics->InterTokenLatency(static_cast<double>(now_ns - last_token_ns_) * 1e-9);
  }
  last_token_ns_ = now_ns;
  ++delivered_;
  ++gathered_.tokens;
  if (ask_.send_token_ids) gathered_.token_ids.push_back(static_cast<uint32_t>(token));
  if (ask_.sampling.logprobs) gathered_.logprobs.push_back(logprob);
  // A token that ends the sequence is part of the ids, never of the text.
  if (!detokenizer_.has_value() || IsStopId(token)) return;
  text_done_ = detokenizer_->Push(token, &gathered_.text, delivered_ >= ask_.sampling.min_tokens);
  if (text_done_) host_->engine->Cancel(id_, FinishReason::kStopText, delivered_);
  if (!ask_.send_text) gathered_.text.clear();
}

void GenerationStream::TrimTurn(FinishEvent& event) {
  const int32_t given = event.usage.prompt_tokens + delivered_;
  if (event.position <= given) return;
  event.position = given;
  host_->engine->Ask([tenant = caller_.tenant, name = ask_.session_id, given](
                         SessionStore& sessions, int64_t now_ns) {
    sessions.Truncate(tenant, name, given, now_ns).IgnoreError();
  });
}

void GenerationStream::TakeFinish(FinishEvent event, int64_t now_ns) {
  if (text_done_) {
    if (event.reason != FinishReason::kStopText) TrimTurn(event);
    event.reason = FinishReason::kStopText;
    event.timings.last_token_ns = last_token_ns_;
  } else if (detokenizer_.has_value() && ask_.send_text && StatusOf(event.reason).ok()) {
    detokenizer_->Flush(&gathered_.text);
  }
  if (ask_.until_context && event.reason == FinishReason::kMaxTokens) {
    event.reason = FinishReason::kContextLimit;
  }
  event.usage.completion_tokens = delivered_;
  host_->metrics->RequestFinished(event, ask_.sampling.max_tokens);
  gathered_finish_ = event;
  std::unique_lock lock(mutex_);
  if (cancel_ns_ != 0) {
    host_->metrics->CancelToEnd(static_cast<double>(now_ns - cancel_ns_) * 1e-9);
  }
  const absl::Status end = end_;
  lock.unlock();
  LogFinished(host_->options, {request_id_, caller_.tenant, ask_.session_id, event, end});
}

void GenerationStream::Flush() {
  std::unique_lock lock(mutex_);
  pending_.Append(gathered_);
  if (gathered_finish_.has_value()) finish_ = gathered_finish_;
  if (!end_.ok() || ended_) return pending_.Clear();
  const int64_t bound = host_->options.stream_buffer_bytes;
  const int64_t unsent = pending_.bytes() + in_flight_bytes_;
  if (overrun_.load(std::memory_order_relaxed)) {
    Shed();
  } else if (shape_ == Shape::kStream && writing_ && unsent > bound) {
    Shed();
  } else if (shape_ == Shape::kStream && writing_ && unsent > bound / 2 && !paused_) {
    paused_ = true;
    host_->metrics->StreamPaused();
    host_->engine->SetPaused(id_, true);
  } else if (shape_ == Shape::kUnary &&
             pending_.bytes() > host_->options.max_reply_bytes - kReplyHeadBytes) {
    // At once: nobody could be told of the tokens that would follow.
    End(ReplyTooLarge(host_->options.max_reply_bytes,
                      "use Generate, which streams, or lower stop.max_tokens"));
    CancelInEngine(FinishReason::kCancelled);
  }
  Pump(std::move(lock));
}

void GenerationStream::End(const absl::Status& status) {
  if (end_.ok()) end_ = status;
  pending_.Clear();
}

void GenerationStream::Shed() {
  shed_ = true;
  host_->metrics->StreamShed();
  End(StatusOf(FinishReason::kSlowReader));
  CancelInEngine(FinishReason::kSlowReader);
}

void GenerationStream::CancelInEngine(FinishReason reason) {
  if (!accepted_ || finish_.has_value() || cancel_ns_ != 0) return;
  cancel_ns_ = SteadyNowNs();
  host_->engine->Cancel(id_, reason);
}

GenerationStream::Step GenerationStream::NextStep(std::string* frame) {
  if (ended_ || starting_ || (writing_ && !shed_)) return Step::kNothing;
  if (end_.ok()) {
    if (!accepted_) return Step::kNothing;
    const bool stream = shape_ == Shape::kStream;
    if (stream && (accepted_message_ != nullptr || pending_.tokens > 0 || !pending_.text.empty())) {
      EncodeTokens(frame);
      return Step::kWrite;
    }
    if (!finish_.has_value()) return Step::kNothing;
    end_ = StatusOf(finish_->reason);
  }
  ended_ = true;
  final_code_.store(static_cast<int>(end_.code()), std::memory_order_relaxed);
  // Before the client can know of the end: it may use the id again at once.
  if (claimed_) host_->table->Release(request_id_);
  if (!end_.ok()) return Step::kFinish;
  EncodeEnd(frame);
  return Step::kWriteLast;
}

void GenerationStream::Pump(std::unique_lock<std::mutex> lock) {
  // Reused, since the transport copies it before anything can come back to this thread.
  static thread_local std::string frame;
  for (;;) {
    const Step step = NextStep(&frame);
    if (step == Step::kNothing) return;
    busy_since_ns_ = SteadyNowNs();
    if (step == Step::kWrite) {
      writing_ = starting_ = true;
      in_flight_bytes_ = static_cast<int64_t>(frame.size());
    }
    StreamOutlet* const outlet = outlet_;
    const absl::Status status = end_;
    lock.unlock();
    // The outlet lives at least until WriteLast or Finish, and those are decided once.
    if (step == Step::kWriteLast) return outlet->WriteLast(frame);
    if (step == Step::kFinish) return outlet->Finish(status);
    outlet->Write(frame);
    lock.lock();
    starting_ = false;
  }
}

void GenerationStream::EncodeTokens(std::string* frame) {
  static thread_local v1::GenerateResponse response;
  response.Clear();
  if (accepted_message_ != nullptr) {
    response.set_request_id(request_id_);
    response.set_allocated_accepted(accepted_message_.release());
  } else {
    cumulative_ += pending_.tokens;
    v1::TokenDelta* delta = response.mutable_tokens();
    delta->mutable_token_ids()->Add(pending_.token_ids.begin(), pending_.token_ids.end());
    delta->mutable_logprobs()->Add(pending_.logprobs.begin(), pending_.logprobs.end());
    if (ask_.send_text) delta->set_text(pending_.text);
    delta->set_cumulative_tokens(cumulative_);
    pending_.Clear();
  }
  response.SerializeToString(frame);
}

void GenerationStream::EncodeEnd(std::string* frame) {
  const int stop = detokenizer_.has_value() ? detokenizer_->matched_stop() : -1;
  const std::string stop_text = stop < 0 ? "" : ask_.sampling.stop[static_cast<size_t>(stop)];
  if (shape_ == Shape::kStream) {
    v1::GenerateResponse response;
    response.set_request_id(request_id_);
    EncodeFinished(*finish_, stop_text, response.mutable_finished());
    response.SerializeToString(frame);
    return;
  }
  v1::GenerateResult result;
  result.set_request_id(request_id_);
  result.set_allocated_accepted(accepted_message_.release());
  if (ask_.send_text) result.set_text(pending_.text);
  result.mutable_token_ids()->Add(pending_.token_ids.begin(), pending_.token_ids.end());
  result.mutable_logprobs()->Add(pending_.logprobs.begin(), pending_.logprobs.end());
  EncodeFinished(*finish_, stop_text, result.mutable_finished());
  result.SerializeToString(frame);
}

}  // namespace quire
