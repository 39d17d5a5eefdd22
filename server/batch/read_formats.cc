// An item is a greedy request of one output token, which is dropped: its readings are the answer.
#include "server/batch/read_formats.h"

#include <cmath>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/message_call.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/generate/generate_frames.h"

namespace quire {
namespace {

constexpr int kMaxItems = 1024;

void FillStatus(const absl::Status& status, v1::ItemStatus* out) {
  const grpc::Status ended = ToGrpcStatus(status);
  out->set_code(static_cast<uint32_t>(ended.error_code()));
  out->set_message(ended.error_message());
  if (!ReasonOf(status).empty()) out->set_reason(ReasonOf(status));
  if (!FieldOf(status).empty()) out->set_field(FieldOf(status));
}

// Of both: one message an item, also for a failure.
class ItemFormat : public FrameFormat {
 public:
  explicit ItemFormat(uint32_t index) : index_(index) {}

  bool one_reply() const override { return true; }
  std::optional<std::string> Accepted(const AcceptedFrame&) override { return std::nullopt; }
  std::optional<std::string> Tokens(const OutputDelta&, const OutputOptions&) override {
    return std::nullopt;
  }
  absl::Status CheckSize(int64_t, int64_t) const override { return absl::OkStatus(); }

 protected:
  template <typename Result>
  std::string Failed(const absl::Status& status) const {
    Result result;
    result.set_index(index_);
    FillStatus(status, result.mutable_status());
    return result.SerializeAsString();
  }
  template <typename Result>
  Result Done(const FinishEvent& finish) const {
    Result result;
    result.set_index(index_);
    EncodeUsage(finish.usage, result.mutable_usage());
    result.mutable_usage()->set_completion_tokens(0);
    EncodeTimings(finish.timings, 0, result.mutable_timings());
    return result;
  }

 private:
  const uint32_t index_;
};

class ScoreFormat final : public ItemFormat {
 public:
  using ItemFormat::ItemFormat;

  std::optional<std::string> End(const EndFrame& end) override {
    auto result = Done<v1::ScoreResult>(end.finish);
    EncodeScores(end.rest.prompt_scores, end.accepted.output.reading.prompt_top, 0,
                 result.mutable_scores());
    double sum = 0;
    for (const v1::TokenScore& score : result.scores()) sum += score.logprob();
    result.set_sum(sum);
    result.set_count(static_cast<uint32_t>(result.scores_size()));
    return result.SerializeAsString();
  }
  std::optional<std::string> Failure(const absl::Status& status, bool) override {
    return Failed<v1::ScoreResult>(status);
  }
};

class EmbedFormat final : public ItemFormat {
 public:
  EmbedFormat(uint32_t index, bool normalize) : ItemFormat(index), normalize_(normalize) {}

  std::optional<std::string> End(const EndFrame& end) override {
    auto result = Done<v1::EmbedResult>(end.finish);
    double squares = 0;
    for (const float x : end.rest.pooled) squares += static_cast<double>(x) * x;
    const double norm = normalize_ && squares > 0 ? std::sqrt(squares) : 1;
    for (const float x : end.rest.pooled) result.add_embedding(static_cast<float>(x / norm));
    return result.SerializeAsString();
  }
  std::optional<std::string> Failure(const absl::Status& status, bool) override {
    return Failed<v1::EmbedResult>(status);
  }

 private:
  const bool normalize_;
};

absl::StatusOr<ParsedRequest> DecodeItem(const v1::ReadItem& item, const std::string& field,
                                         const ServingModel& model) {
  ParsedRequest parsed;
  parsed.request = std::make_unique<Request>();
  SamplingParams& sampling = parsed.request->sampling;
  sampling.row.temperature = 0;
  sampling.max_tokens = 1;
  parsed.output.text = false;
  if (item.has_token_ids()) {
    parsed.kind = ParsedRequest::Prompt::kTokenIds;
    const auto& ids = item.token_ids().ids();
    if (ids.empty()) return InvalidField(field + ".token_ids.ids", "the item is empty");
    RETURN_IF_ERROR(DecodeTokenIds(field + ".token_ids.ids",
                                   {ids.data(), static_cast<size_t>(ids.size())}, model,
                                   &parsed.request->prompt));
    return parsed;
  }
  if (!item.has_text()) return InvalidField(field, "missing; set one of text, token_ids");
  RETURN_IF_ERROR(NeedTokenizer(field + ".text", model));
  parsed.text = item.text();
  return parsed;
}

// The parts that both requests have. `reading` is that of every item.
template <typename Message>
absl::StatusOr<Batch> DecodeItems(const Message& request, const ReadingParams& reading,
                                  const ServingModel& model) {
  if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), model));
  if (request.items().empty() || request.items_size() > kMaxItems) {
    return InvalidField("items", "must have 1 to " + std::to_string(kMaxItems) + " items, not " +
                                     std::to_string(request.items_size()));
  }
  RETURN_IF_ERROR(CheckPriority(request.priority()));
  Batch batch;
  for (int i = 0; i < request.items_size(); ++i) {
    absl::StatusOr<ParsedRequest> parsed =
        DecodeItem(request.items(i), "items[" + std::to_string(i) + "]", model);
    if (parsed.ok()) {
      parsed->model = request.model();
      parsed->add_special_tokens =
          !request.has_add_special_tokens() || request.add_special_tokens();
      parsed->request->priority = request.priority();
      parsed->request->reading = reading;
    }
    batch.items.push_back(std::move(parsed));
  }
  return batch;
}

}  // namespace

absl::StatusOr<Batch> DecodeScore(const grpc::ByteBuffer& bytes, const ServingModel& model) {
  v1::ScoreRequest request;
  RETURN_IF_ERROR(ParseMessage(bytes, &request));
  if (request.top_logprobs() > static_cast<uint32_t>(kMaxTopTokens)) {
    return InvalidField("top_logprobs", "must be at most " + std::to_string(kMaxTopTokens) +
                                            ", not " + std::to_string(request.top_logprobs()));
  }
  ReadingParams reading;
  reading.prompt_top = static_cast<int32_t>(request.top_logprobs());
  ASSIGN_OR_RETURN(Batch batch, DecodeItems(request, reading, model));
  batch.make_format = [](uint32_t index) { return std::make_unique<ScoreFormat>(index); };
  return batch;
}

absl::StatusOr<Batch> DecodeEmbed(const grpc::ByteBuffer& bytes, const ServingModel& model) {
  v1::EmbedRequest request;
  RETURN_IF_ERROR(ParseMessage(bytes, &request));
  ReadingParams reading;
  switch (request.pooling()) {
    case v1::EmbedRequest::POOLING_UNSPECIFIED:
    case v1::EmbedRequest::POOLING_LAST: reading.pooling = Pooling::kLast; break;
    case v1::EmbedRequest::POOLING_MEAN: reading.pooling = Pooling::kMean; break;
    default:
      return InvalidField("pooling", "must be POOLING_MEAN or POOLING_LAST, not " +
                                         std::to_string(request.pooling()));
  }
  ASSIGN_OR_RETURN(Batch batch, DecodeItems(request, reading, model));
  const bool normalize = !request.has_normalize() || request.normalize();
  batch.make_format = [normalize](uint32_t index) {
    return std::make_unique<EmbedFormat>(index, normalize);
  };
  return batch;
}

}  // namespace quire
