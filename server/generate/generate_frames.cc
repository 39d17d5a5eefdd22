// From the engine's values to quire.v1.
#include "server/generate/generate_frames.h"

#include <algorithm>
#include <limits>

#include "quire/v1/inference.pb.h"
#include "server/call/sampling_codec.h"
#include "server/call/score_view.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

// All of a GenerateResult but its output: 16 stop strings of 256 bytes, 1024 biases of at most 14,
// 2200 ids of at most 8, and some numbers. The output itself takes no more than OutputDelta::bytes
// says: ids of a vocabulary below 2^28 are varints of at most 4 bytes.
constexpr int64_t kReplyHeadBytes = 64 << 10;

void EncodeStop(const SamplingParams& in, int32_t max_tokens, v1::StopConditions* out) {
  out->set_max_tokens(static_cast<uint32_t>(max_tokens));
  out->set_min_tokens(static_cast<uint32_t>(in.min_tokens));
  for (const std::string& text : in.stop) out->add_stop(text);
  for (const int32_t id : in.stop_token_ids) out->add_stop_token_ids(static_cast<uint32_t>(id));
  out->set_include_stop_in_output(in.include_stop_in_output);
  out->set_ignore_eos(in.ignore_eos);
  out->set_loop_max_tokens(static_cast<uint32_t>(in.loop_max_tokens));
  out->set_loop_min_repeats(static_cast<uint32_t>(in.loop_min_repeats));
}

v1::Residency::Outcome WireOutcome(Residency::Outcome outcome) {
  switch (outcome) {
    case Residency::Outcome::kNone: return v1::Residency::OUTCOME_NONE;
    case Residency::Outcome::kDevice: return v1::Residency::OUTCOME_DEVICE;
    case Residency::Outcome::kRestored: return v1::Residency::OUTCOME_RESTORED;
    case Residency::Outcome::kPartial: return v1::Residency::OUTCOME_PARTIAL;
    case Residency::Outcome::kRecomputed: return v1::Residency::OUTCOME_RECOMPUTED;
  }
  return v1::Residency::OUTCOME_UNSPECIFIED;
}

void EncodeResidency(const Residency& in, v1::Residency* out) {
  out->set_outcome(WireOutcome(in.outcome));
  out->set_device_tokens(static_cast<uint32_t>(in.device_tokens));
  out->set_host_tokens(static_cast<uint32_t>(in.host_tokens));
  out->set_recomputed_tokens(static_cast<uint32_t>(in.recomputed_tokens));
  out->set_restore_seconds(static_cast<double>(in.restore_ns) * 1e-9);
}

v1::FinishReason WireReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos: return v1::FINISH_REASON_EOS;
    case FinishReason::kStopToken: return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopText: return v1::FINISH_REASON_STOP_TEXT;
    case FinishReason::kMaxTokens: return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kContextLimit: return v1::FINISH_REASON_CONTEXT_LIMIT;
    case FinishReason::kLoop: return v1::FINISH_REASON_LOOP;
    case FinishReason::kNoToken: return v1::FINISH_REASON_NO_TOKEN;
    case FinishReason::kTruncated: return v1::FINISH_REASON_TRUNCATED;
    default: return v1::FINISH_REASON_UNSPECIFIED;
  }
}

// Seconds between two instants, 0 when either never came.
double Seconds(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns <= from_ns ? 0.0 : static_cast<double>(to_ns - from_ns) * 1e-9;
}

void EncodeReading(const ReadingParams& in, v1::OutputOptions* out) {
  if (in.of_output()) {
    out->set_top_logprobs(static_cast<uint32_t>(in.num_top));
    for (const int32_t id : in.ids) out->add_logprob_token_ids(static_cast<uint32_t>(id));
    out->set_processed_logprobs(in.processed);
  }
  if (in.prompt_top >= 0) out->set_prompt_logprobs(static_cast<uint32_t>(in.prompt_top));
}

void FillAccepted(const std::string& model_name, const AcceptedFrame& in,
                  const AnswerCounts& answers, v1::Accepted* out) {
  out->set_model(model_name);
  out->set_prompt_tokens(static_cast<uint32_t>(in.prompt_tokens));
  EncodeSampling(in.sampling, out->mutable_sampling());
  EncodeStop(in.sampling, in.max_tokens, out->mutable_stop());
  v1::OutputOptions* output = out->mutable_output();
  output->set_text(in.output.text);
  output->set_token_ids(in.output.token_ids);
  output->set_logprobs(in.sampling.logprobs);
  EncodeReading(in.output.reading, output);
  out->mutable_speculation()->set_max_guesses(static_cast<uint32_t>(in.output.max_guesses));
  output->set_skip_special_tokens(in.output.skip_special_tokens);
  out->set_queue_position(static_cast<uint32_t>(std::max<int64_t>(in.queue_position, 0)));
  if (in.predicted_ttft_ns > 0) {
    out->set_predicted_first_token_seconds(static_cast<double>(in.predicted_ttft_ns) * 1e-9);
  }
  if (in.output.detach_seconds > 0) out->set_detach_seconds(in.output.detach_seconds);
  if (!answers.several()) return;
  out->set_n(static_cast<uint32_t>(answers.n));
  out->set_best_of(static_cast<uint32_t>(answers.best_of));
}

void FillFinished(const EndFrame& end, const AnswerPlace* place, v1::Finished* finished) {
  const FinishEvent& event = end.finish;
  finished->set_reason(WireReason(event.reason));
  if (event.reason == FinishReason::kEos || event.reason == FinishReason::kStopToken) {
    finished->set_stop_token_id(static_cast<uint32_t>(event.stop_token));
    if (end.tally.tool_calls > 0) finished->set_reason(v1::FINISH_REASON_TOOL_CALLS);
  }
  if (event.reason == FinishReason::kStopText) finished->set_stop_text(end.stop_text);
  EncodeUsage(event.usage, finished->mutable_usage());
  if (end.accepted.output.answer.reasoning != nullptr) {
    finished->mutable_usage()->set_reasoning_tokens(
        static_cast<uint32_t>(end.tally.reasoning_tokens));
  }
  EncodeTimings(event.timings, event.usage.completion_tokens, finished->mutable_timings());
  EncodeResidency(event.residency, finished->mutable_residency());
  if (event.position > 0) finished->set_position(static_cast<uint32_t>(event.position));
  if (place == nullptr) return;
  finished->set_index(place->index);
  finished->set_seed(end.accepted.sampling.row.seed);
  finished->set_mean_logprob(MeanLogprob(end));
  if (place->request_usage != nullptr) {
    EncodeUsage(*place->request_usage, finished->mutable_request_usage());
  }
}

// Sets the output's fields of a TokenDelta, a GenerateResult or a FurtherAnswer, the scores of the
// prompt aside.
template <typename Message>
void FillOutput(const OutputDelta& delta, const OutputOptions& output, Message* message) {
  message->mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  message->mutable_logprobs()->Add(delta.logprobs.begin(), delta.logprobs.end());
  const ReadingParams& reading = output.reading;
  const auto num_ids = static_cast<int32_t>(reading.ids.size());
  EncodeScores(delta.scores, reading.num_top, num_ids, message->mutable_scores());
  if (!output.text) return;
  message->set_text(delta.text);
  if (output.answer.reasoning != nullptr) message->set_reasoning(delta.reasoning);
  for (const ToolCallPart& call : delta.calls) {
    v1::ToolCallDelta* out = message->add_tool_calls();
    out->set_index(call.index);
    if (!call.id.empty()) out->set_id(call.id);
    if (!call.name.empty()) out->set_name(call.name);
    out->set_arguments(call.arguments);
  }
}

}  // namespace

void EncodeScores(std::span<const uint32_t> words, int32_t num_top, int32_t num_ids,
                  google::protobuf::RepeatedPtrField<v1::TokenScore>* out) {
  ForEachScore(words, num_top, num_ids, [out](const ScoreView& in) {
    v1::TokenScore* score = out->Add();
    score->set_token_id(in.token_id());
    score->set_logprob(in.logprob());
    score->set_rank(in.rank());
    for (int32_t i = 0; i < in.num_top(); ++i) {
      score->add_top_ids(in.top_id(i));
      score->add_top_logprobs(in.top_logprob(i));
    }
    for (int32_t i = 0; i < in.num_ids(); ++i) {
      score->add_requested_logprobs(in.logprob_of_id(i));
    }
  });
}

void EncodeUsage(const Usage& usage, v1::Usage* out) {
  out->set_prompt_tokens(static_cast<uint32_t>(usage.prompt_tokens));
  out->set_completion_tokens(static_cast<uint32_t>(usage.completion_tokens));
  out->set_cached_tokens(static_cast<uint32_t>(usage.cached_tokens));
  out->set_preemptions(static_cast<uint32_t>(usage.preemptions));
  out->set_guessed_tokens(static_cast<uint32_t>(usage.guessed_tokens));
  out->set_accepted_guesses(static_cast<uint32_t>(usage.accepted_guesses));
}

void EncodeTimings(const RequestTimings& at, int32_t tokens, v1::Timings* out) {
  out->set_queue_seconds(Seconds(at.arrival_ns, at.admitted_ns));
  out->set_prefill_seconds(Seconds(at.admitted_ns, at.first_token_ns));
  out->set_first_token_seconds(Seconds(at.arrival_ns, at.first_token_ns));
  // The two ends are taken on different threads; one token takes no time to decode.
  if (tokens > 1) out->set_decode_seconds(Seconds(at.first_token_ns, at.last_token_ns));
  out->set_total_seconds(Seconds(at.arrival_ns, at.finished_ns));
  out->set_opened_seconds(Seconds(at.arrival_ns, at.opened_ns));
  out->set_restore_asked_seconds(Seconds(at.arrival_ns, at.restore_asked_ns));
  out->set_restored_seconds(Seconds(at.arrival_ns, at.restored_ns));
}

double MeanLogprob(const EndFrame& end) {
  const int32_t tokens = end.finish.usage.completion_tokens;
  return tokens > 0 ? end.logprob_sum / tokens : -std::numeric_limits<double>::infinity();
}

std::string EncodeAccepted(const std::string& model_name, const AcceptedFrame& accepted,
                           const AnswerCounts& answers) {
  v1::GenerateResponse response;
  response.set_request_id(accepted.request_id);
  FillAccepted(model_name, accepted, answers, response.mutable_accepted());
  return response.SerializeAsString();
}

std::string EncodeTokens(const OutputDelta& delta, const OutputOptions& output,
                         const AnswerPlace* place) {
  static thread_local v1::GenerateResponse response;  // its memory is reused
  response.Clear();
  FillOutput(delta, output, response.mutable_tokens());
  EncodeScores(delta.prompt_scores, output.reading.prompt_top, 0,
               response.mutable_tokens()->mutable_prompt_scores());
  response.mutable_tokens()->set_cumulative_tokens(delta.cumulative);
  if (place != nullptr) response.mutable_tokens()->set_index(place->index);
  return response.SerializeAsString();
}

std::string EncodeFinished(const EndFrame& end, const AnswerPlace* place) {
  v1::GenerateResponse response;
  response.set_request_id(end.accepted.request_id);
  FillFinished(end, place, response.mutable_finished());
  return response.SerializeAsString();
}

std::string EncodeResult(const std::string& model_name, const EndFrame& end) {
  v1::GenerateResult result;
  result.set_request_id(end.accepted.request_id);
  FillAccepted(model_name, end.accepted, {}, result.mutable_accepted());
  FillOutput(end.rest, end.accepted.output, &result);
  EncodeScores(end.rest.prompt_scores, end.accepted.output.reading.prompt_top, 0,
               result.mutable_prompt_scores());
  FillFinished(end, nullptr, result.mutable_finished());
  return result.SerializeAsString();
}

std::string EncodeResults(const std::string& model_name, const AnswerEnds& answers) {
  if (!answers.counts.several()) return EncodeResult(model_name, answers.ends.front());
  const AcceptedFrame& accepted = answers.accepted;
  v1::GenerateResult result;
  result.set_request_id(accepted.request_id);
  FillAccepted(model_name, accepted, answers.counts, result.mutable_accepted());
  AnswerPlace place{.request_usage = &answers.request_usage};
  for (const EndFrame& end : answers.ends) {
    if (place.index == 0) {
      FillOutput(end.rest, accepted.output, &result);
      EncodeScores(end.rest.prompt_scores, accepted.output.reading.prompt_top, 0,
                   result.mutable_prompt_scores());
      FillFinished(end, &place, result.mutable_finished());
    } else {
      v1::FurtherAnswer* further = result.add_further_answers();
      FillOutput(end.rest, accepted.output, further);
      FillFinished(end, &place, further->mutable_finished());
    }
    place.request_usage = nullptr;
    ++place.index;
  }
  return result.SerializeAsString();
}

absl::Status CheckResultSize(int64_t output_bytes, int64_t max_reply_bytes) {
  if (output_bytes <= max_reply_bytes - kReplyHeadBytes) return absl::OkStatus();
  return ReplyTooLarge(max_reply_bytes, "use Generate, which streams, or lower stop.max_tokens");
}

}  // namespace quire
