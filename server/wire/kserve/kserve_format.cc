// A response is prepared once for each request; only its contents change from token to token.
#include "server/wire/kserve/kserve_format.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "field/kserve.pb.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/wire/kserve/infer_request.h"
#include "server/wire/kserve/tensors.h"
#include "server/wire/unknown_fields.h"

namespace quire {
namespace {

constexpr char kFinalParameter[] = "triton_final_response";
constexpr size_t kMaxMessageBytes = 1024;  // names in it may be the client's
constexpr char kUnfinished[] = "None";     // as the field's backends say it
// All of a response but its text: names, numbers and the echoed id's share.
constexpr int64_t kReplyHeadBytes = 16 << 10;

// The values of one response.
struct Outputs {
  std::string text;
  std::string finish_reason;
  uint32_t num_input_tokens = 0;
  uint32_t num_output_tokens = 0;
};

class Format : public WireFormat {
 public:
  Format(const ServingModel& model, InferCounters* counters)
      : model_(model), counters_(*counters) {}

  absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase&,
                                       const grpc::ByteBuffer& bytes, const ServingModel& model,
                                       uint64_t seed) override {
    inference::ModelInferRequest request;
    const absl::Status parsed = ParseKnownFields(bytes, &request);
    id_ = request.id();
    RETURN_IF_ERROR(parsed);
    ASSIGN_OR_RETURN(InferRequest decoded, DecodeInfer(request, model, seed));
    outputs_ = decoded.outputs;
    stream_ = decoded.stream;
    raw_ = decoded.raw;
    return std::move(decoded.parsed);
  }

  absl::Status Named(const absl::Status& status) const override { return NamedForInfer(status); }

  std::optional<std::string> Accepted(const AcceptedFrame& accepted) override {
    prompt_tokens_ = static_cast<uint32_t>(accepted.prompt_tokens);
    return std::nullopt;
  }

  absl::Status CheckSize(int64_t bytes, int64_t max_reply_bytes) const override {
    const int64_t id_bytes = static_cast<int64_t>(id_.size());
    if (bytes + id_bytes + kReplyHeadBytes <= max_reply_bytes) return absl::OkStatus();
    return ReplyTooLarge(max_reply_bytes,
                         "use ModelStreamInfer with the tensor stream, or lower max_tokens");
  }

 protected:
  // Everything of a response but its contents.
  void Prepare(inference::ModelInferResponse* response) const {
    response->set_model_name(model_.name);
    response->set_model_version(kModelVersion);
    response->set_id(id_);
    const auto add = [response](bool wanted, const char* name, const char* datatype) {
      if (!wanted) return;
      inference::ModelInferResponse::InferOutputTensor* output = response->add_outputs();
      output->set_name(name);
      output->set_datatype(datatype);
      output->add_shape(1);
    };
    add(outputs_.text, "text_output", "BYTES");
    add(outputs_.finish_reason, "finish_reason", "BYTES");
    add(outputs_.num_input_tokens, "num_input_tokens", "UINT32");
    add(outputs_.num_output_tokens, "num_output_tokens", "UINT32");
  }

  // Sets the contents of a prepared response.
  void SetContents(const Outputs& values, inference::ModelInferResponse* response) const {
    response->clear_raw_output_contents();
    int at = 0;
    const auto text = [&](bool wanted, const std::string& value) {
      if (!wanted) return;
      if (raw_) {
        response->add_raw_output_contents(RawBytes(value));
        return;
      }
      inference::InferTensorContents* contents =
          response->mutable_outputs(at++)->mutable_contents();
      contents->clear_bytes_contents();
      contents->add_bytes_contents(value);
    };
    const auto number = [&](bool wanted, uint32_t value) {
      if (!wanted) return;
      if (raw_) {
        response->add_raw_output_contents(RawUint32(value));
        return;
      }
      inference::InferTensorContents* contents =
          response->mutable_outputs(at++)->mutable_contents();
      contents->clear_uint_contents();
      contents->add_uint_contents(value);
    };
    text(outputs_.text, values.text);
    text(outputs_.finish_reason, values.finish_reason);
    number(outputs_.num_input_tokens, values.num_input_tokens);
    number(outputs_.num_output_tokens, values.num_output_tokens);
  }

  // The values of the last response, which has all output that no response has carried. Counts.
  Outputs LastValues(const EndFrame& end) {
    const RequestTimings& at = end.finish.timings;
    const auto span = [](int64_t from, int64_t to) {
      return static_cast<uint64_t>(std::max<int64_t>(to - from, 0));
    };
    ++counters_.succeeded;
    counters_.queue_ns += span(at.arrival_ns, at.admitted_ns);
    counters_.compute_ns += span(at.admitted_ns, at.finished_ns);
    counters_.total_ns += span(at.arrival_ns, at.finished_ns);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    counters_.last_unix_ms =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
    return {end.rest.text, FieldWord(end.finish.reason),
            static_cast<uint32_t>(end.accepted.prompt_tokens), end.rest.tokens};
  }

  const ServingModel& model_;
  InferCounters& counters_;
  std::string id_;
  InferOutputs outputs_;
  bool stream_ = false;
  bool raw_ = false;
  uint32_t prompt_tokens_ = 0;
};

class InferFormat final : public Format {
 public:
  using Format::Format;

  absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase& context,
                                       const grpc::ByteBuffer& bytes, const ServingModel& model,
                                       uint64_t seed) override {
    ASSIGN_OR_RETURN(ParsedRequest parsed, Format::Decode(context, bytes, model, seed));
    if (stream_) return InvalidField("stream", "ModelInfer has one response; use ModelStreamInfer");
    return parsed;
  }

  bool one_reply() const override { return true; }
  std::optional<std::string> Failure(const absl::Status&, bool) override {
    ++counters_.failed;
    return std::nullopt;
  }
  std::optional<std::string> Tokens(const OutputDelta&, const OutputOptions&) override {
    return std::nullopt;
  }
  std::optional<std::string> End(const EndFrame& end) override {
    inference::ModelInferResponse response;
    Prepare(&response);
    SetContents(LastValues(end), &response);
    return response.SerializeAsString();
  }
};

class StreamInferFormat final : public Format {
 public:
  using Format::Format;

  bool one_reply() const override { return !stream_; }

  std::optional<std::string> Tokens(const OutputDelta& delta, const OutputOptions&) override {
    Outputs values;
    values.text = delta.text;
    values.finish_reason = kUnfinished;
    values.num_input_tokens = prompt_tokens_;
    values.num_output_tokens = delta.tokens;
    return Message(values, /*final=*/false);
  }

  std::optional<std::string> End(const EndFrame& end) override {
    return Message(LastValues(end), /*final=*/true);
  }

  // The other requests of the call go on. gRPC's code has no field of its own.
  std::optional<std::string> Failure(const absl::Status& status, bool) override {
    ++counters_.failed;
    inference::ModelStreamInferResponse failed;
    std::string text = absl::StatusCodeToString(status.code()) + ": ";
    text.append(status.message().data(), std::min(status.message().size(), kMaxMessageBytes));
    text.resize(ValidUtf8Prefix(text));
    failed.set_error_message(text);
    failed.mutable_infer_response()->set_id(id_);
    return failed.SerializeAsString();
  }

 private:
  std::string Message(const Outputs& values, bool final) {
    inference::ModelInferResponse* response = message_.mutable_infer_response();
    if (!prepared_) Prepare(response);
    prepared_ = true;
    SetContents(values, response);
    (*response->mutable_parameters())[kFinalParameter].set_bool_param(final);
    return message_.SerializeAsString();
  }

  inference::ModelStreamInferResponse message_;
  bool prepared_ = false;
};

}  // namespace

std::unique_ptr<WireFormat> ModelInferFormat(const ServingModel& model, InferCounters* counters) {
  return std::make_unique<InferFormat>(model, counters);
}

std::unique_ptr<WireFormat> ModelStreamInferFormat(const ServingModel& model,
                                                   InferCounters* counters) {
  return std::make_unique<StreamInferFormat>(model, counters);
}

}  // namespace quire
