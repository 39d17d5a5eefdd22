// From the engine's values to vllm.grpc.engine.
#include "server/wire/vllm_engine/vllm_frames.h"

#include <utility>

#include "server/call/score_view.h"
#include "server/call/status_codec.h"
#include "server/wire/field_names.h"

namespace quire {
namespace {

namespace wire = ::vllm::grpc::engine;

// All of a GenerateComplete but the output: some numbers and a stop string of 256 bytes.
constexpr int64_t kHeadBytes = 4 << 10;

}  // namespace

void VllmFrames::Take(const wire::GenerateRequest& request) {
  streaming_ = request.stream();
  is_text_ = request.input_case() == wire::GenerateRequest::kText;
  logprobs_ = request.sampling_params().has_logprobs();
  num_top_ = request.sampling_params().logprobs();
}

void VllmFrames::AddLogprobs(const OutputDelta& delta, wire::OutputLogProbs* out) const {
  out->mutable_token_logprobs()->Add(delta.logprobs.begin(), delta.logprobs.end());
  out->mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  ForEachScore(delta.scores, num_top_, 0, [out](const ScoreView& score) {
    wire::TopLogProbs* const top = out->add_top_logprobs();
    for (int32_t i = 0; i < score.num_top(); ++i) {
      top->add_values(score.top_logprob(i));
      top->add_token_ids(score.top_id(i));
    }
  });
}

std::optional<std::string> VllmFrames::Accepted(const AcceptedFrame& accepted) {
  prompt_tokens_ = static_cast<uint32_t>(accepted.prompt_tokens);
  return std::nullopt;
}

void VllmFrames::Keep(const OutputDelta& delta) {
  bytes_ += delta.bytes();
  completion_tokens_ += static_cast<uint32_t>(delta.token_ids.size());
  if (streaming_ && !Fits(bytes_, max_reply_bytes_)) {
    // Clear would keep the memory for as long as the stream lasts.
    so_far_ = wire::GenerateComplete();
    return;
  }
  so_far_.mutable_output_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  if (logprobs_) AddLogprobs(delta, so_far_.mutable_output_logprobs());
}

std::optional<std::string> VllmFrames::Tokens(const OutputDelta& delta, const OutputOptions&) {
  Keep(delta);
  wire::GenerateStreamChunk* const chunk = chunk_.mutable_chunk();
  chunk->Clear();
  chunk->mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  chunk->set_prompt_tokens(prompt_tokens_);
  chunk->set_completion_tokens(delta.cumulative);
  chunk->set_index(index_);
  if (logprobs_) AddLogprobs(delta, chunk->mutable_output_logprobs());
  return chunk_.SerializeAsString();
}

void VllmFrames::Complete(const char* reason, wire::GenerateComplete* complete) {
  *complete = std::move(so_far_);
  complete->set_finish_reason(reason);
  complete->set_prompt_tokens(prompt_tokens_);
  complete->set_completion_tokens(completion_tokens_);
  complete->set_index(index_);
}

std::optional<std::string> VllmFrames::End(const EndFrame& end) {
  Keep(end.rest);
  prompt_tokens_ = static_cast<uint32_t>(end.accepted.prompt_tokens);
  wire::GenerateResponse response;
  wire::GenerateComplete* const complete = response.mutable_complete();
  Complete(FieldWord(end.finish.reason), complete);
  complete->set_cached_tokens(static_cast<uint32_t>(end.finish.usage.cached_tokens));
  if (end.finish.reason == FinishReason::kStopToken) {
    complete->set_matched_token_id(static_cast<uint32_t>(end.finish.stop_token));
  } else if (end.finish.reason == FinishReason::kStopText) {
    complete->set_matched_stop_str(end.stop_text);
  }
  return response.SerializeAsString();
}

// Those that the engine refuses once it knows the prompt's length.
absl::Status VllmFrames::Named(const absl::Status& status) const {
  const FieldName names[] = {{"prompt", is_text_ ? "text" : "tokenized.input_ids"},
                             {"stop.max_tokens", "sampling_params.max_tokens"},
                             {"stop.min_tokens", "sampling_params.min_tokens"}};
  return WithFieldNames(status, names);
}

std::optional<std::string> VllmFrames::Failure(const absl::Status& status, bool) {
  if (ReasonOf(status) != "ABORTED") return std::nullopt;
  wire::GenerateResponse response;
  Complete("abort", response.mutable_complete());
  return response.SerializeAsString();
}

bool VllmFrames::Fits(int64_t bytes, int64_t max_reply_bytes) const {
  // An id is a varint of at most 4 bytes; with log probabilities it comes twice beside a float.
  // A score counts for more than its message takes.
  const int64_t output = logprobs_ && num_top_ == 0 ? bytes / 8 * 12 : bytes;
  return output <= max_reply_bytes - kHeadBytes;
}

absl::Status VllmFrames::CheckSize(int64_t bytes, int64_t max_reply_bytes) const {
  if (Fits(bytes, max_reply_bytes)) return absl::OkStatus();
  return ReplyTooLarge(max_reply_bytes, "set stream, or lower sampling_params.max_tokens");
}

}  // namespace quire
