// VllmFrames: one output of a request as GenerateResponse messages: chunks of new ids, then a
// GenerateComplete with all of them; or the latter alone.
#pragma once

#include <cstdint>
#include <string>

#include "field/vllm_engine.pb.h"
#include "server/generate/wire_format.h"

namespace quire {

class VllmFrames final : public FrameFormat {
 public:
  // `index` of the output among the request's n.
  VllmFrames(uint32_t index, int64_t max_reply_bytes)
      : index_(index), max_reply_bytes_(max_reply_bytes) {}

  // Before the stream starts: what the answers depend on.
  void Take(const ::vllm::grpc::engine::GenerateRequest& request);

  bool one_reply() const override { return !streaming_; }
  std::optional<std::string> Accepted(const AcceptedFrame& accepted) override;
  std::optional<std::string> Tokens(const OutputDelta& delta, const OutputOptions& output) override;
  std::optional<std::string> End(const EndFrame& end) override;
  absl::Status Named(const absl::Status& status) const override;
  // An abort ends the output with the reason "abort" and the call with OK, as vLLM does it.
  std::optional<std::string> Failure(const absl::Status& status, bool accepted) override;
  absl::Status CheckSize(int64_t bytes, int64_t max_reply_bytes) const override;

 private:
  void AddLogprobs(const OutputDelta& delta, ::vllm::grpc::engine::OutputLogProbs* out) const;
  // Whether a message of at most `max_reply_bytes` holds an output of `bytes`.
  bool Fits(int64_t bytes, int64_t max_reply_bytes) const;
  // Adds to the output so far.
  void Keep(const OutputDelta& delta);
  // Moves the output so far into `complete`.
  void Complete(const char* reason, ::vllm::grpc::engine::GenerateComplete* complete);

  const uint32_t index_;
  const int64_t max_reply_bytes_;
  bool streaming_ = true;
  bool logprobs_ = false;
  int32_t num_top_ = 0;  // most likely tokens beside each drawn one
  uint32_t prompt_tokens_ = 0;
  // Reused by each chunk.
  ::vllm::grpc::engine::GenerateResponse chunk_;
  bool is_text_ = false;  // the prompt
  int64_t bytes_ = 0;     // of the output so far
  uint32_t completion_tokens_ = 0;
  // That output, with its log probabilities; empty once chunks have more than one message can hold.
  ::vllm::grpc::engine::GenerateComplete so_far_;
};

}  // namespace quire
