// The callbacks of one stream, in the order in which they happen.
#include "clients/load/run/stream.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/connect/channel.h"
#include "clients/load/run/pacer.h"

namespace quire::load {
namespace {

std::chrono::system_clock::time_point After(double seconds) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::chrono::duration<double>(seconds));
}

double Seconds(int64_t ns) { return 1e-9 * static_cast<double>(ns); }

ResidencyRecord ToRecord(const v1::Residency& residency) {
  ResidencyRecord record;
  const auto outcome = static_cast<size_t>(residency.outcome());
  record.outcome = outcome < ResidencyRecord::kOutcomes ? static_cast<uint8_t>(outcome) : 0;
  record.device_tokens = static_cast<int32_t>(residency.device_tokens());
  record.host_tokens = static_cast<int32_t>(residency.host_tokens());
  record.recomputed_tokens = static_cast<int32_t>(residency.recomputed_tokens());
  record.restore_seconds = residency.restore_seconds();
  return record;
}

}  // namespace

v1::GenerateRequest ToMessage(const PlannedRequest& plan, const WorkloadSettings& settings,
                              const std::string& model) {
  v1::GenerateRequest message;
  message.set_model(model);
  if (plan.text.empty()) {
    message.mutable_token_ids()->mutable_ids()->Add(plan.token_ids.begin(), plan.token_ids.end());
  } else if (settings.chat) {
    v1::ChatMessage* chat = message.mutable_chat()->add_messages();
    chat->set_role("user");
    chat->set_content(plan.text);
  } else {
    message.set_text(plan.text);
  }
  v1::SamplingParams* sampling = message.mutable_sampling();
  sampling->set_seed(plan.sampling_seed);
  if (settings.temperature >= 0)
    sampling->set_temperature(static_cast<float>(settings.temperature));
  if (settings.top_p >= 0) sampling->set_top_p(static_cast<float>(settings.top_p));
  if (settings.top_k >= 0) sampling->set_top_k(static_cast<uint32_t>(settings.top_k));
  message.mutable_stop()->set_max_tokens(static_cast<uint32_t>(plan.max_tokens));
  message.mutable_stop()->set_ignore_eos(settings.ignore_eos);
  message.mutable_output()->set_text(settings.text);
  message.mutable_output()->set_token_ids(settings.token_ids);
  if (plan.priority != 0) message.set_priority(plan.priority);
  if (!plan.session.empty()) {
    message.set_session_id(plan.session);
    message.set_expected_position(static_cast<uint32_t>(plan.position));
    message.set_create_session(plan.turn == 0);
  }
  return message;
}

Stream::Stream(PlannedRequest plan, v1::GenerateRequest message, RequestRecord* record,
               RunState* run, bool keep_tokens)
    : plan_(std::move(plan)),
      prompt_end_(plan_.position + static_cast<int32_t>(plan_.token_ids.size())),
      record_(record),
      run_(run),
      keep_tokens_(keep_tokens),
      message_(std::make_unique<v1::GenerateRequest>(std::move(message))) {
  if (!keep_tokens_) std::vector<uint32_t>().swap(plan_.token_ids);
  if (run_->detailed) {
    const auto most = static_cast<size_t>(plan_.max_tokens);
    record_->gap_seconds.reserve(most);
    record_->frame_tokens.reserve(most);
  }
}

int64_t Stream::Now() const { return NowNs() - run_->base_ns; }

void Stream::Start(v1::Inference::Stub* stub) {
  // The call may end before this function does.
  const std::shared_ptr<Stream> alive = self_ = shared_from_this();
  if (plan_.deadline_seconds > 0) context_.set_deadline(After(plan_.deadline_seconds));
  if (run_->endpoint != nullptr) connect::AddMetadata(*run_->endpoint, &context_);
  run_->tally->Sent();
  record_->sent_ns = Now();
  stub->async()->Generate(&context_, message_.get(), this);
  StartRead(&frame_);
  StartCall();  // serialises the message
  message_.reset();
}

void Stream::OnReadDone(bool ok) {
  const int64_t now_ns = Now();
  if (!ok) return;  // OnDone follows
  if (!heard_) {
    heard_ = true;
    run_->silent_in_a_row.store(0, std::memory_order_relaxed);
  }
  if (finished_) Break("a frame came after Finished");
  if (frame_.has_tokens()) {
    TakeTokens(frame_.tokens(), now_ns);
  } else if (frame_.has_accepted()) {
    record_->prompt_tokens = static_cast<int32_t>(frame_.accepted().prompt_tokens());
  } else if (frame_.has_finished()) {
    TakeFinished(frame_.finished());
  }
  ReadNext();
}

void Stream::TakeTokens(const v1::TokenDelta& delta, int64_t now_ns) {
  const auto cumulative = static_cast<int32_t>(delta.cumulative_tokens());
  const int32_t tokens =
      run_->token_ids ? delta.token_ids_size() : cumulative - record_->output_tokens;
  if (cumulative != record_->output_tokens + tokens || tokens < 0) {
    Break("cumulative_tokens has a gap or a repetition");
  }
  if (keep_tokens_) {
    tokens_.insert(tokens_.end(), delta.token_ids().begin(), delta.token_ids().end());
  }
  if (run_->detailed && delta.has_text()) record_->text += delta.text();
  if (tokens <= 0) return;
  record_->output_tokens += tokens;
  ++record_->frames;
  const bool measured = !record_->warmup && !record_->slow_reader;
  if (record_->first_ns == 0) {
    record_->first_ns = now_ns;
    run_->tally->FirstFrame(tokens, Seconds(now_ns - record_->sent_ns));
  } else {
    const double gap = Seconds(now_ns - record_->last_ns);
    run_->tally->NextFrame(tokens, gap, measured);
    if (run_->detailed) record_->gap_seconds.push_back(static_cast<float>(gap));
  }
  if (run_->detailed) record_->frame_tokens.push_back(static_cast<uint16_t>(tokens));
  record_->last_ns = now_ns;
  if (plan_.cancel_after > 0 && !cancelled_ && record_->output_tokens >= plan_.cancel_after) {
    cancelled_ = true;
    context_.TryCancel();
  }
}

void Stream::TakeFinished(const v1::Finished& finished) {
  finished_ = true;
  const v1::Usage& usage = finished.usage();
  record_->prompt_tokens = static_cast<int32_t>(usage.prompt_tokens());
  record_->cached_tokens = static_cast<int32_t>(usage.cached_tokens());
  record_->preemptions = static_cast<int32_t>(usage.preemptions());
  const v1::Timings& timings = finished.timings();
  record_->server = {.opened = timings.opened_seconds(),
                     .restore_asked = timings.restore_asked_seconds(),
                     .restored = timings.restored_seconds(),
                     .first_step = timings.queue_seconds(),
                     .first_token = timings.first_token_seconds()};
  record_->residency = ToRecord(finished.residency());
  if (static_cast<int32_t>(usage.completion_tokens()) != record_->output_tokens) {
    Break("Finished counts other tokens than came");
  }
  const auto position = static_cast<int32_t>(finished.position());
  if (!plan_.session.empty() && position != prompt_end_ + record_->output_tokens) {
    Break("Finished has another position than the number of the session's tokens");
  }
}

void Stream::Break(const char* what) {
  record_->sequence_broken = true;
  if (record_->error.empty()) record_->error = what;
}

void Stream::ReadNext() {
  if (!record_->slow_reader || cancelled_) {
    StartRead(&frame_);
    return;
  }
  // With no read in flight, only the hold keeps the call from ending before the alarm.
  AddHold();
  if (alarm_ == nullptr) alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(After(run_->slow_delay_seconds), [this](bool) {
    StartRead(&frame_);
    RemoveHold();
  });
}

void Stream::OnDone(const grpc::Status& status) {
  record_->end_ns = Now();
  Judge(status);
  run_->tally->Ended(record_->outcome);
  run_->ends->OnEnd(std::move(self_));
}

void Stream::Judge(const grpc::Status& status) {
  record_->status_code = static_cast<int32_t>(status.error_code());
  if (status.ok() && finished_ && !record_->sequence_broken) {
    record_->outcome = Outcome::kOk;
    return;
  }
  if (status.ok()) {
    if (!finished_) Break("the stream ended with OK but without Finished");
    record_->outcome = Outcome::kFailed;
    return;
  }
  if (record_->error.empty()) {
    record_->error = absl::StrCat("status ", record_->status_code, ": ", status.error_message());
  }
  if (record_->sequence_broken) {
    record_->outcome = Outcome::kFailed;
  } else if (cancelled_) {
    record_->outcome = Outcome::kCancelled;
  } else if (run_->ending.load()) {
    record_->outcome = Outcome::kIncomplete;
  } else {
    record_->outcome = Outcome::kFailed;
  }
  // A refusal by a Quire server carries details; a failed connection has none.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty()) {
    run_->silent_in_a_row.fetch_add(1);
  }
}

}  // namespace quire::load
