// The thread that brings the last end sends them all. Its own member is on the call until it has
// told the others, so that the call, and with it the writer, lasts as long.
#include "server/answers/held_answers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "server/call/status_codec.h"
#include "server/generate/stall_watch.h"

namespace quire {
namespace {

// Of a message's parts beside the output: Accepted, and a Finished for each answer with a stop
// string of 256 bytes.
constexpr int64_t kHeadBytes = 64 << 10;
constexpr int64_t kEndBytes = 1 << 10;

}  // namespace

// The first answer computes what the others find: the least that was found was there before.
void AddUsage(const Usage& usage, Usage* sum) {
  const bool first = sum->prompt_tokens == 0;
  sum->cached_tokens =
      first ? usage.cached_tokens : std::min(sum->cached_tokens, usage.cached_tokens);
  sum->prompt_tokens = usage.prompt_tokens;
  sum->completion_tokens += usage.completion_tokens;
  sum->preemptions += usage.preemptions;
  sum->guessed_tokens += usage.guessed_tokens;
  sum->accepted_guesses += usage.accepted_guesses;
}

HeldAnswers::HeldAnswers(const GenerateResources* resources, const AnswerCounts& counts,
                         bool one_reply, SharedWriter* writer)
    : resources_(resources),
      counts_(counts),
      one_reply_(one_reply),
      writer_(writer),
      draws_(static_cast<size_t>(counts.best_of)),
      open_(counts.best_of) {}

absl::Status HeldAnswers::CheckSize(uint32_t index, int64_t bytes) {
  const int64_t max_reply_bytes = resources_->calls.options.max_reply_bytes;
  const int64_t grown = bytes - std::exchange(draws_[index].bytes, bytes);
  const int64_t all = bytes_.fetch_add(grown, std::memory_order_relaxed) + grown;
  if (all + kHeadBytes + counts_.best_of * kEndBytes <= max_reply_bytes) return absl::OkStatus();
  return ReplyTooLarge(max_reply_bytes,
                       counts_.several() ? "ask for fewer answers, or lower stop.max_tokens"
                                         : "use Generate, which streams, or lower stop.max_tokens");
}

void HeldAnswers::Take(uint32_t index, SharedWriter::Member* member,
                       const std::shared_ptr<GenerationStream>& stream, const EndFrame& end) {
  std::unique_lock lock(mutex_);
  Draw& draw = draws_[index];
  draw.state = State::kHeld;
  draw.member = member;
  draw.stream = stream;
  draw.accepted.emplace(end.accepted);
  draw.output = end.rest;
  draw.finish = end.finish;
  draw.stop_text = end.stop_text;
  draw.logprob_sum = end.logprob_sum;
  draw.tally = end.tally;
  --open_;
  if (dropped_) {
    lock.unlock();
    return Leave(index, std::nullopt);
  }
  if (open_ > 0) {
    lock.unlock();
    // A watch would take it for one whose reader has stopped.
    return resources_->stalls.Forget(stream.get());
  }
  sender_ = static_cast<int32_t>(index);
  const std::vector<uint32_t> chosen = Rank();
  // The scores of the prompt come with the first answer, whichever draw that is.
  std::swap(draws_[0].output.prompt_scores, draws_[chosen[0]].output.prompt_scores);
  lock.unlock();
  if (one_reply_) {
    SendResult(chosen, index);
  } else {
    SendFrames(chosen, index);
  }
}

// The draws to be sent, in the order of the answers.
std::vector<uint32_t> HeldAnswers::Rank() const {
  std::vector<uint32_t> order(draws_.size());
  std::iota(order.begin(), order.end(), 0u);
  if (counts_.n < counts_.best_of) {
    std::stable_sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      return MeanLogprob(draws_[a].End()) > MeanLogprob(draws_[b].End());
    });
  }
  order.resize(static_cast<size_t>(counts_.n));
  return order;
}

Usage HeldAnswers::AllUsage() const {
  Usage sum;
  for (const Draw& draw : draws_) AddUsage(draw.finish.usage, &sum);
  return sum;
}

void HeldAnswers::SendResult(const std::vector<uint32_t>& chosen, uint32_t last) {
  std::vector<EndFrame> ends;
  ends.reserve(chosen.size());
  for (const uint32_t index : chosen) ends.push_back(draws_[index].End());
  const std::string result = EncodeResults(resources_->model.name, {.accepted = *draws_[0].accepted,
                                                                    .counts = counts_,
                                                                    .ends = ends,
                                                                    .request_usage = AllUsage()});
  for (uint32_t index = 0; index < draws_.size(); ++index) {
    if (index != last) Leave(index, std::nullopt);
  }
  Leave(last, result);
}

void HeldAnswers::SendFrames(const std::vector<uint32_t>& chosen, uint32_t last) {
  const AcceptedFrame& accepted = *draws_[0].accepted;
  const Usage usage = AllUsage();
  AnswerPlace place;
  std::vector<std::string> tokens(draws_.size());
  for (const uint32_t index : chosen) {
    if (place.index + 1 == chosen.size()) place.request_usage = &usage;
    Draw& draw = draws_[index];
    tokens[index] = EncodeTokens(draw.output, accepted.output, &place);
    draw.last = EncodeFinished(draw.End(), &place);
    ++place.index;
  }
  for (uint32_t index = 0; index < draws_.size(); ++index) {
    if (index != last && tokens[index].empty()) Leave(index, std::nullopt);
  }
  for (const uint32_t index : chosen) {
    if (index != last) Write(index, tokens[index]);
  }
  if (tokens[last].empty()) return Leave(last, std::nullopt);
  Write(last, tokens[last]);
  EndSending(last);
}

void HeldAnswers::Write(uint32_t index, const std::string& tokens) {
  {
    const std::lock_guard lock(mutex_);
    if (draws_[index].state != State::kHeld) return;
    draws_[index].state = State::kWriting;
  }
  writer_->Write(draws_[index].member, tokens);
}

void HeldAnswers::Leave(uint32_t index, const std::optional<std::string>& message) {
  bool dropped = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(draws_[index].state, State::kGone) == State::kGone) return;
    dropped = dropped_;
  }
  writer_->Leave(draws_[index].member, dropped ? std::nullopt : message);
}

// Drop has left the sender's member here, if it came.
void HeldAnswers::EndSending(uint32_t index) {
  {
    const std::lock_guard lock(mutex_);
    sender_ = -1;
    if (!dropped_) return;
  }
  Leave(index, std::nullopt);
}

bool HeldAnswers::Written(uint32_t index, bool ok) {
  {
    const std::lock_guard lock(mutex_);
    if (draws_[index].state != State::kWriting) return false;
  }
  Leave(index, ok ? std::optional(draws_[index].last) : std::nullopt);
  return true;
}

void HeldAnswers::Drop(uint32_t index) {
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
    // Its stream leaves by itself, or its end finds the call dropped.
    if (draws_[index].state == State::kOpen) return;
    if (sender_ == static_cast<int32_t>(index)) return;
  }
  Leave(index, std::nullopt);
}

}  // namespace quire
