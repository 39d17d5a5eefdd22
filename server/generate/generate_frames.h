// GenerateFrames: the messages that answer Generate and GenerateUnary, as bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/generate/stream_outlet.h"

namespace quire {

// Each makes one GenerateResponse.
std::string EncodeAccepted(const std::string& model_name, const AcceptedFrame& accepted);
std::string EncodeTokens(const OutputDelta& delta, const OutputOptions& output);
std::string EncodeFinished(const EndFrame& end);

// The one GenerateResult.
std::string EncodeResult(const std::string& model_name, const EndFrame& end);
// Whether a GenerateResult with `output_bytes` of output (OutputDelta::bytes) fits a message.
absl::Status CheckResultSize(int64_t output_bytes, int64_t max_reply_bytes);

}  // namespace quire
