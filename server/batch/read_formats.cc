// An item is a greedy request of one output token, which is dropped: its readings are the answer.
#include "server/batch/read_formats.h"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/generate/call_opening.h"
#include "server/generate/generate_frames.h"
#include "server/generate/request_codec.h"
#include "server/generate/stream_table.h"
#include "server/lines/item_status.h"
#include "server/wire/stream_member.h"

namespace quire {
namespace {

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
    FillItemStatus(status, result.mutable_status());
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

// One item. Takes one of the server's streams from its start to its release.
class ReadItem final : public StreamMember {
 public:
  ReadItem(const GenerateResources* resources, std::unique_ptr<FrameFormat> format, ItemPlace place)
      : StreamMember(resources, place.writer, std::move(format), place.origin),
        resources_(resources),
        place_(std::move(place)) {}

  absl::Status Open(absl::StatusOr<ParsedRequest> decoded) {
    entered_ = true;
    RETURN_IF_ERROR(resources_->streams.Enter(stream()->tenant()));  // refused items leave too
    RETURN_IF_ERROR(decoded.status());
    stream()->SendAs(GenerationStream::Shape::kUnary);
    RETURN_IF_ERROR(Register(resources_, stream(), ""));
    return SendToEngine(resources_, stream(), *std::move(decoded));
  }

  void Released() override {
    StreamMember::Released();
    if (std::exchange(entered_, false)) resources_->streams.Leave(stream()->tenant());
    // The call owns the writer, which owns this.
    const std::function<void()> released = std::move(place_.released);
    released();
  }

 private:
  const GenerateResources* const resources_;
  ItemPlace place_;
  bool entered_ = false;
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

using Items = std::vector<absl::StatusOr<ParsedRequest>>;

// The parts that both requests have. `reading` is that of every item.
template <typename Message>
absl::StatusOr<Items> DecodeItems(const Message& request, const ReadingParams& reading,
                                  const ServingModel& model) {
  if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), model));
  if (request.items().empty() || request.items_size() > kMaxItems) {
    return InvalidField("items", "must have 1 to " + std::to_string(kMaxItems) + " items, not " +
                                     std::to_string(request.items_size()));
  }
  RETURN_IF_ERROR(CheckPriority(request.priority()));
  Items items;
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
    items.push_back(std::move(parsed));
  }
  return items;
}

using MakeFormat = std::function<std::unique_ptr<FrameFormat>(uint32_t index)>;

// An item that is refused does not refuse the others.
Batch BatchOf(const GenerateResources* resources, Items decoded, MakeFormat make_format) {
  Batch batch{.num_items = decoded.size()};
  const auto items = std::make_shared<Items>(std::move(decoded));
  batch.start = [resources, items, make_format = std::move(make_format)](ItemPlace place) {
    const uint32_t index = place.index;
    SharedWriter* const writer = place.writer;
    const auto item = std::make_shared<ReadItem>(resources, make_format(index), std::move(place));
    if (!writer->Join(item)) return;  // the call has ended
    const std::shared_ptr<GenerationStream> stream = item->stream();
    const absl::Status status = item->Open(std::move((*items)[index]));
    if (!status.ok()) stream->Refuse(status);
  };
  return batch;
}

}  // namespace

absl::StatusOr<Batch> DecodeScore(const grpc::ByteBuffer& bytes,
                                  const GenerateResources* resources) {
  v1::ScoreRequest request;
  RETURN_IF_ERROR(ParseMessage(bytes, &request));
  if (request.top_logprobs() > static_cast<uint32_t>(kMaxTopTokens)) {
    return InvalidField("top_logprobs", "must be at most " + std::to_string(kMaxTopTokens) +
                                            ", not " + std::to_string(request.top_logprobs()));
  }
  ReadingParams reading;
  reading.prompt_top = static_cast<int32_t>(request.top_logprobs());
  ASSIGN_OR_RETURN(Items items, DecodeItems(request, reading, resources->model));
  return BatchOf(resources, std::move(items),
                 [](uint32_t index) { return std::make_unique<ScoreFormat>(index); });
}

absl::StatusOr<Batch> DecodeEmbed(const grpc::ByteBuffer& bytes,
                                  const GenerateResources* resources) {
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
  ASSIGN_OR_RETURN(Items items, DecodeItems(request, reading, resources->model));
  const bool normalize = !request.has_normalize() || request.normalize();
  return BatchOf(resources, std::move(items), [normalize](uint32_t index) {
    return std::make_unique<EmbedFormat>(index, normalize);
  });
}

}  // namespace quire
