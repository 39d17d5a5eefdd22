// Every transition sets state under the lock and leaves the acting to Pump, so that streams and
// outlets are only ever called unlocked.
#include "server/detach/kept_answer.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "server/call/status_codec.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/metrics/metrics.h"

namespace quire {
namespace {

// How long the transport may take to end a call that was torn down.
constexpr int64_t kTornNs = 5'000'000'000;
// An answer keeps this many times the bytes that a stream may have unsent: a lost connection takes
// no more with it than the buffers of its sockets held.
constexpr int64_t kKeptBuffers = 4;
// An answer of a tenant that has too many keeps this part of it.
constexpr int64_t kCrowdedPart = 16;

absl::Status TakenOver() {
  return Refusal(absl::StatusCode::kAborted, "TAKEN_OVER",
                 "another call has attached to the request and reads on");
}

absl::Status Expired() {
  return Refusal(absl::StatusCode::kCancelled, "DETACH_EXPIRED",
                 "no call has attached to the request in its detach_seconds");
}

absl::Status Outside(uint32_t after_tokens, uint32_t begin, uint32_t end) {
  absl::Status status = Refusal(absl::StatusCode::kOutOfRange, "AFTER_TOKENS",
                                "after_tokens: is " + std::to_string(after_tokens) +
                                    "; the server has the output behind " + std::to_string(begin) +
                                    " to " + std::to_string(end) + " tokens");
  AddFact("first", std::to_string(begin), &status);
  AddFact("last", std::to_string(end), &status);
  return status;
}

}  // namespace

absl::Status KeptAnswer::NotFound() {
  return Refusal(absl::StatusCode::kNotFound, "REQUEST_NOT_FOUND",
                 "request_id: no live or detached stream has this id; it may have expired");
}

void KeptAnswer::Begin(std::shared_ptr<GenerationStream> stream, Reader reader) {
  const Lock lock(mutex_);
  tenant_ = stream->tenant();
  stream_ = std::move(stream);
  reader_ = std::move(reader);
}

void KeptAnswer::Admit(double detach_seconds) {
  const Lock lock(mutex_);
  if (closed_) return;  // aborted on the way here
  request_id_ = stream_->request_id();
  detach_ns_ = static_cast<int64_t>(detach_seconds * 1e9);
  kept_ = true;
  answers_.Add(shared_from_this());
}

absl::Status KeptAnswer::Attach(const Reader& reader, uint32_t after_tokens, bool* took_over) {
  Lock lock(mutex_);
  if (forgotten_) return NotFound();
  if (after_tokens < output_.begin() || after_tokens > shown()) {
    return Outside(after_tokens, output_.begin(), shown());
  }
  *took_over = reader_ != nullptr;
  const Reader before = PartFrom(TakenOver());
  reader->position = after_tokens;
  reader_ = reader;
  SetDetached(false);
  GiveUpPlace();  // the new call has one
  KeepWithinBounds();
  Pump(std::move(lock), before);
  Pump(Lock(mutex_), reader);
  return absl::OkStatus();
}

void KeptAnswer::WriteDone(const Reader& reader, bool ok) {
  if (!ok) return Leave(reader);
  Lock lock(mutex_);
  reader->writing = false;
  KeepWithinBounds();
  Pump(std::move(lock), reader);
}

void KeptAnswer::Leave(const Reader& reader) {
  Lock lock(mutex_);
  if (reader->ended) return;
  const absl::Status left = StatusOf(FinishReason::kCancelled);
  if (reader_ == reader) {
    PartFrom(left);
    Detach();
  }
  reader->failure = left;
  Pump(std::move(lock), reader);
}

bool KeptAnswer::Done(const Reader& reader, bool whole) {
  Lock lock(mutex_);
  std::erase(leaving_, reader);
  if (reader_ == reader) {
    read_ = reader->position;
    reader_ = nullptr;
    if (whole) {
      HoldTo(SteadyNowNs() + detach_ns_);
      answers_.Settle(*this, true);
    } else {
      Detach();
    }
  }
  const bool takes_place = reader_ == nullptr && !over() && !forgotten_ && !holds_place_;
  if (takes_place) holds_place_ = true;
  const std::shared_ptr<GenerationStream> unused = TakeUnused();
  lock.unlock();
  if (unused != nullptr) unused->Closed();
  return takes_place;
}

void KeptAnswer::Forget() {
  Lock lock(mutex_);
  if (reader_ == nullptr) Forget(std::move(lock), Expired());
}

void KeptAnswer::Forget(Lock lock, const absl::Status& why) {
  if (std::exchange(forgotten_, true)) return;
  if (over()) return Close(std::move(lock), why);
  const std::shared_ptr<GenerationStream> stream = stream_;
  lock.unlock();
  stream->Abort(why);  // Fail follows
}

void KeptAnswer::WriteAccepted(const AcceptedFrame& accepted) {
  Lock lock(mutex_);
  accepted_.emplace(accepted);
  const std::shared_ptr<GenerationStream> stream = stream_;
  lock.unlock();
  stream->WriteDone(true);
  lock.lock();
  const Reader reader = reader_;
  Pump(std::move(lock), reader);
}

void KeptAnswer::WriteEnd(const EndFrame& end) {
  Lock lock(mutex_);
  GiveUpPlace();
  ending_ = Ending{end.finish, end.stop_text, end.logprob_sum, end.tally};
  if (forgotten_) return Close(std::move(lock), Expired());
  const Reader reader = reader_;
  Pump(std::move(lock), reader);
}

void KeptAnswer::Fail(const absl::Status& status) {
  Lock lock(mutex_);
  GiveUpPlace();
  failure_ = status;
  // A request that was never accepted, or was aborted, is not for a second reader.
  const bool gone = forgotten_ || !accepted_.has_value() || absl::IsCancelled(status);
  if (gone) return Close(std::move(lock), status);
  const Reader reader = reader_;
  Pump(std::move(lock), reader);
}

void KeptAnswer::Keep(OutputDelta& output, bool holds_text) {
  const Lock lock(mutex_);
  if (over()) return output.Clear();
  output_.Add(output);
  holds_text_ = holds_text;
}

void KeptAnswer::Show() {
  Lock lock(mutex_);
  if (closed_) return;
  KeepWithinBounds();
  const Reader reader = reader_;
  Pump(std::move(lock), reader);
}

void KeptAnswer::Drop(const absl::Status& why) {
  Lock lock(mutex_);
  forgotten_ = true;
  if (over()) Close(std::move(lock), why);  // else the end is on its way here
}

int64_t KeptAnswer::Check(int64_t now_ns) {
  const int64_t timeout_ns = resources_.stalls.timeout_ns();
  int64_t next_ns = now_ns + timeout_ns;
  Lock lock(mutex_);
  const std::vector<Reader> stuck = Stuck(now_ns, &next_ns);
  Reader slow;
  if (reader_ != nullptr && !reader_->ended && reader_->writing) {
    if (now_ns - reader_->busy_since_ns >= timeout_ns) {
      resources_.calls.metrics.StreamShed();
      slow = PartFrom(StatusOf(FinishReason::kSlowReader));
      Detach();
    } else {
      next_ns = std::min(next_ns, reader_->busy_since_ns + timeout_ns);
    }
  }
  const bool waits = reader_ == nullptr && until_ns_ != 0 && !forgotten_;
  const bool expired = waits && now_ns >= until_ns_;
  if (waits && !expired) next_ns = std::min(next_ns, until_ns_);
  if (expired && detached_) answers_.metrics().Expired();
  Pump(std::move(lock), slow);
  for (const Reader& reader : stuck) reader->TearDown(resources_.calls.connections);
  if (expired) Forget();
  return next_ns;
}

std::vector<KeptAnswer::Reader> KeptAnswer::Stuck(int64_t now_ns, int64_t* next_ns) {
  const int64_t timeout_ns = resources_.stalls.timeout_ns();
  std::vector<Reader> readers = leaving_;
  if (reader_ != nullptr) readers.push_back(reader_);
  std::erase_if(readers, [&](const Reader& reader) {
    if (!reader->ended) return true;
    const int64_t at_ns = reader->torn_ns == 0 ? reader->busy_since_ns + timeout_ns
                                               : reader->torn_ns + std::min(timeout_ns, kTornNs);
    if (now_ns >= at_ns) reader->torn_ns = now_ns;
    *next_ns = std::min(*next_ns, now_ns >= at_ns ? now_ns + std::min(timeout_ns, kTornNs) : at_ns);
    return now_ns < at_ns;
  });
  return readers;
}

void KeptAnswer::Close(Lock lock, const absl::Status& why) {
  if (std::exchange(closed_, true)) return;
  const std::shared_ptr<KeptAnswer> self = shared_from_this();
  forgotten_ = true;
  SetDetached(false);
  FreeId();
  if (kept_) {
    answers_.Remove(*this);
    answers_.Count(tenant_, -counted_bytes_ - KeptAnswers::kAnswerBytes);
  }
  output_ = KeptOutput();
  const Reader reader = PartFrom(why);
  const std::shared_ptr<GenerationStream> unused = TakeUnused();
  Pump(std::move(lock), reader);
  if (unused != nullptr) unused->Closed();
}

std::shared_ptr<GenerationStream> KeptAnswer::TakeUnused() {
  // The stall watch looks at readers through the stream.
  const bool used = !closed_ || reader_ != nullptr || !leaving_.empty();
  return used ? nullptr : std::exchange(stream_, nullptr);
}

KeptAnswer::Reader KeptAnswer::PartFrom(const absl::Status& why) {
  if (reader_ == nullptr) return nullptr;
  Reader reader = std::exchange(reader_, nullptr);
  read_ = reader->position;
  if (!reader->ended) reader->failure = why;
  leaving_.push_back(reader);
  return reader;
}

void KeptAnswer::Detach() {
  if (closed_) return;
  // An id that was given up with an end that did not arrive is the request's again, if it is free.
  if (id_free_) id_free_ = !resources_.streams.Claim(request_id_, stream_).ok();
  SetDetached(true);
  answers_.Settle(*this, false);
  HoldTo(SteadyNowNs() + detach_ns_);
}

void KeptAnswer::SetDetached(bool detached) {
  if (std::exchange(detached_, detached) == detached) return;
  detached ? answers_.metrics().Detached() : answers_.metrics().Returned();
}

void KeptAnswer::HoldTo(int64_t until_ns) {
  until_ns_ = until_ns;
  if (stream_ != nullptr) resources_.stalls.LookAt(stream_.get(), until_ns);
}

void KeptAnswer::GiveUpPlace() {
  if (std::exchange(holds_place_, false)) resources_.streams.Leave(tenant_);
}

void KeptAnswer::FreeId() {
  if (!std::exchange(id_free_, true)) {
    resources_.streams.Release(stream_->request_id(), *stream_);
  }
}

void KeptAnswer::KeepWithinBounds() {
  if (closed_) return;
  int64_t most = kKeptBuffers * resources_.calls.options.stream_buffer_bytes;
  if (answers_.Crowded(tenant_)) most /= kCrowdedPart;
  const uint32_t read = reader_ != nullptr ? reader_->position : read_;
  while (output_.bytes() > most && output_.begin() < read) {
    const uint32_t begin = output_.begin();
    output_.ForgetTo(begin + 1);
    if (output_.begin() == begin) break;  // the last token stays
  }
  const int64_t unread = output_.BytesFrom(read);
  if (!over() && !paused_ && unread > most / 2) {
    paused_ = true;
    resources_.engine.SetPaused(stream_->id(), true);
  } else if (paused_ && unread <= most / 8) {
    paused_ = false;
    resources_.engine.SetPaused(stream_->id(), false);
  }
  const int64_t grown = output_.bytes() - counted_bytes_;
  if (grown != 0 && kept_) {
    counted_bytes_ += grown;
    answers_.Count(tenant_, grown);
  }
}

uint32_t KeptAnswer::shown() const {
  const bool waits = holds_text_ && !over() && output_.end() > output_.begin();
  return output_.end() - (waits ? 1 : 0);
}

KeptAnswer::Step KeptAnswer::NextStep(AttachedReader& reader, OutputDelta* delta) {
  if (reader.ended || reader.starting) return Step::kNothing;
  if (!reader.failure.ok()) {
    reader.ended = true;
    return Step::kFail;
  }
  if (reader.writing || !accepted_.has_value()) return Step::kNothing;
  if (!std::exchange(reader.accepted_sent, true)) return Step::kAccepted;
  const uint32_t last = shown();
  const bool prompt = !reader.prompt_sent && output_.has_prompt_scores() && last > 0;
  if (reader.position < last || prompt) {
    output_.Copy(reader.position, last, resources_.calls.options.stream_buffer_bytes, prompt,
                 delta);
    reader.position = delta->cumulative;
    reader.prompt_sent = true;
    return Step::kTokens;
  }
  if (!over()) return Step::kNothing;
  reader.ended = true;
  reader.failure = failure_;
  FreeId();  // before the client can know of the end: it may use the id again at once
  return failure_.ok() ? Step::kEnd : Step::kFail;
}

void KeptAnswer::Pump(Lock lock, const Reader& reader) {
  if (reader == nullptr) return;
  // Its memory is reused by all answers of a thread: an outlet copies it before anything can come
  // back to this thread.
  static thread_local OutputDelta delta;
  for (;;) {
    delta.Clear();
    const Step step = NextStep(*reader, &delta);
    if (step == Step::kNothing) return;
    reader->busy_since_ns = SteadyNowNs();
    const bool last = step == Step::kEnd || step == Step::kFail;
    if (!last) reader->writing = reader->starting = true;
    const absl::Status status = reader->failure;
    const std::shared_ptr<GenerationStream> stream = stream_;  // accepted_ refers to it
    lock.unlock();
    Send(step, *reader, delta, status);
    if (last) return;
    lock.lock();
    reader->starting = false;
  }
}

// The members that are read here do not change once a step was decided.
void KeptAnswer::Send(Step step, AttachedReader& reader, const OutputDelta& delta,
                      const absl::Status& status) {
  StreamOutlet& outlet = reader.outlet();
  if (step == Step::kFail) return outlet.Fail(status);
  if (step == Step::kAccepted) return outlet.WriteAccepted(*accepted_);
  if (step == Step::kTokens) return outlet.WriteTokens(delta, accepted_->output);
  static const OutputDelta kNothingLeft;
  outlet.WriteEnd({.accepted = *accepted_,
                   .rest = kNothingLeft,
                   .finish = ending_->finish,
                   .stop_text = ending_->stop_text,
                   .logprob_sum = ending_->logprob_sum,
                   .tally = ending_->tally});
}

}  // namespace quire
