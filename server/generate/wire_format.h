// WireFormat: one generating call in one protocol, as a decoder of its request and an encoder of
// its frames. The reactors of generate_call.h do everything else: the stream, flow control,
// accounting and the end. A protocol is a class that implements this page, and a line for each of
// its methods.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/call/serving_model.h"
#include "server/generate/request_codec.h"
#include "server/generate/stream_outlet.h"

namespace grpc {
class ServerContextBase;
}

namespace quire {

// The answers to one request. One thread at a time calls it, CheckSize aside.
class FrameFormat {
 public:
  virtual ~FrameFormat() = default;

  // Whether all output comes as one message. A method that returns one message is always so; one
  // that streams is so if its request asks for it.
  virtual bool one_reply() const { return false; }

  // Each encodes one message; nullopt: the protocol has none at this point.
  virtual std::optional<std::string> Accepted(const AcceptedFrame& accepted) = 0;
  virtual std::optional<std::string> Tokens(const OutputDelta& delta,
                                            const OutputOptions& output) = 0;
  // The last message: of a stream, or with all output if one_reply().
  virtual std::optional<std::string> End(const EndFrame& end) = 0;
  // A refusal or failure with its field named as this protocol's clients know it. Called before
  // Failure, and for the status that ends the call.
  virtual absl::Status Named(const absl::Status& status) const { return status; }
  // For protocols that put errors into a message and end the call with OK; nullopt: the call ends
  // with the status. `accepted`: Accepted was called before.
  virtual std::optional<std::string> Failure(const absl::Status& status, bool accepted) {
    (void)status, (void)accepted;
    return std::nullopt;
  }

  // Whether one message can hold `bytes` of output (OutputDelta::bytes). Asked if all output comes
  // as one message; may be called while another member runs.
  virtual absl::Status CheckSize(int64_t bytes, int64_t max_reply_bytes) const = 0;
};

// One object a call. Decode comes before all others.
class WireFormat : public FrameFormat {
 public:
  // The request with all its fields checked, as DecodeGenerate does it. On gRPC's thread: no work
  // that is linear in the client's text. `context` has the call's metadata; `seed` is for requests
  // that bring none.
  virtual absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase& context,
                                               const grpc::ByteBuffer& bytes,
                                               const ServingModel& model, uint64_t seed) = 0;
};

using MakeWireFormat = std::function<std::unique_ptr<WireFormat>(const ServingModel& model)>;

}  // namespace quire
