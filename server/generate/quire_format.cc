// GenerateRequest in, GenerateResponse or GenerateResult out.
#include "server/generate/quire_format.h"

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/generate/generate_frames.h"

namespace quire {
namespace {

class Format : public WireFormat {
 public:
  explicit Format(const ServingModel& model) : model_(model) {}

  absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase&,
                                       const grpc::ByteBuffer& bytes, const ServingModel& model,
                                       uint64_t seed) override {
    v1::GenerateRequest request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    return DecodeGenerate(request, model, seed);
  }

 protected:
  const ServingModel& model_;
};

class Streaming final : public Format {
 public:
  using Format::Format;

  std::optional<std::string> Accepted(const AcceptedFrame& accepted) override {
    return EncodeAccepted(model_.name, accepted);
  }
  std::optional<std::string> Tokens(const OutputDelta& delta,
                                    const OutputOptions& output) override {
    return EncodeTokens(delta, output);
  }
  std::optional<std::string> End(const EndFrame& end) override { return EncodeFinished(end); }
  absl::Status CheckSize(int64_t, int64_t) const override { return absl::OkStatus(); }
};

class Unary final : public Format {
 public:
  using Format::Format;

  absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase& context,
                                       const grpc::ByteBuffer& bytes, const ServingModel& model,
                                       uint64_t seed) override {
    ASSIGN_OR_RETURN(ParsedRequest parsed, Format::Decode(context, bytes, model, seed));
    if (parsed.output.detach_seconds > 0) {
      return InvalidField("detach_seconds", "must be 0: only a stream goes on; use Generate");
    }
    return parsed;
  }
  bool one_reply() const override { return true; }
  std::optional<std::string> Accepted(const AcceptedFrame&) override { return std::nullopt; }
  std::optional<std::string> Tokens(const OutputDelta&, const OutputOptions&) override {
    return std::nullopt;
  }
  std::optional<std::string> End(const EndFrame& end) override {
    return EncodeResult(model_.name, end);
  }
  absl::Status CheckSize(int64_t bytes, int64_t max_reply_bytes) const override {
    return CheckResultSize(bytes, max_reply_bytes);
  }
};

}  // namespace

std::unique_ptr<WireFormat> GenerateFormat(const ServingModel& model) {
  return std::make_unique<Streaming>(model);
}

std::unique_ptr<WireFormat> GenerateUnaryFormat(const ServingModel& model) {
  return std::make_unique<Unary>(model);
}

}  // namespace quire
