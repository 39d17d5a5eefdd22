// The methods of quire.v1.Inference.
#include "server/front/inference_service.h"

#include <vector>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/answers/answers_call.h"
#include "server/batch/batch_call.h"
#include "server/batch/generate_items.h"
#include "server/batch/read_formats.h"
#include "server/call/chat_codec.h"
#include "server/call/message_call.h"
#include "server/call/status_codec.h"
#include "server/detach/detach_call.h"
#include "server/generate/generate_call.h"
#include "server/generate/quire_format.h"
#include "server/generate/refusals.h"
#include "server/generate/request_codec.h"

namespace quire {
namespace {

absl::Status Tokenize(const ServingModel& model, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse* response) {
  if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), model));
  RETURN_IF_ERROR(NeedTokenizer("Tokenize", model));
  std::string text;
  bool add_special = false;
  if (request.has_text()) {
    text = request.text();
    add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  } else if (request.has_chat()) {
    ASSIGN_OR_RETURN(const DecodedChat chat, DecodeChat(request.chat(), model.chat_templates));
    ASSIGN_OR_RETURN(text, RenderChat(chat));
  } else {
    return InvalidField("input", "missing; set text or chat");
  }
  std::vector<int32_t> ids;
  std::vector<TokenOffset> offsets;
  const absl::Status status = model.tokenizer->Encode(text, add_special, /*parse_special=*/true,
                                                      &ids, request.offsets() ? &offsets : nullptr);
  RETURN_IF_ERROR(TextRefusal("text", status));
  response->mutable_token_ids()->Add(ids.begin(), ids.end());
  for (const TokenOffset& offset : offsets) {
    response->add_begin(static_cast<uint32_t>(offset.begin));
    response->add_end(static_cast<uint32_t>(offset.end));
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const ServingModel& model, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse* response) {
  if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), model));
  RETURN_IF_ERROR(NeedTokenizer("Detokenize", model));
  std::vector<int32_t> ids;
  const auto& in = request.token_ids();
  RETURN_IF_ERROR(
      DecodeTokenIds("token_ids", {in.data(), static_cast<size_t>(in.size())}, model, &ids));
  const bool skip = !request.has_skip_special_tokens() || request.skip_special_tokens();
  response->set_text(model.tokenizer->Decode(ids, skip));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<RawService> MakeInferenceService(const GenerateResources* resources,
                                                 KeptAnswers* kept) {
  auto service = std::make_unique<RawService>(&resources->calls.door);
  const RawService::ServerStreaming generate =
      StreamingGenerate(resources, {"Generate", GenerateFormat});
  service->Add("/quire.v1.Inference/Generate",
               StreamingAnswers(resources, DetachableGenerate(resources, kept, generate)));
  service->Add("/quire.v1.Inference/Attach", AttachCall(resources, kept));
  service->Add(
      "/quire.v1.Inference/GenerateUnary",
      UnaryAnswers(resources, UnaryGenerate(resources, {"GenerateUnary", GenerateUnaryFormat})));
  service->Add("/quire.v1.Inference/GenerateBatch",
               StreamingBatch(resources, {"GenerateBatch", DecodeGenerateBatch}));
  service->Add("/quire.v1.Inference/Score", StreamingBatch(resources, {"Score", DecodeScore}));
  service->Add("/quire.v1.Inference/Embed", StreamingBatch(resources, {"Embed", DecodeEmbed}));
  const ServingModel* model = &resources->model;
  AddCall<v1::TokenizeRequest, v1::TokenizeResponse>(
      service.get(), &resources->calls, "/quire.v1.Inference/Tokenize", CallCost::kLinearInRequest,
      [model](const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
        return Tokenize(*model, request, response);
      });
  AddCall<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      service.get(), &resources->calls, "/quire.v1.Inference/Detokenize",
      CallCost::kLinearInRequest,
      [model](const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response) {
        return Detokenize(*model, request, response);
      });
  return service;
}

}  // namespace quire
