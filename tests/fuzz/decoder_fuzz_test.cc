// The decoders of requests for text, ours and other projects': random messages, messages with
// fields that this server does not know, and mutated bytes. Each becomes a valid request or a
// refusal with a name.
#include <google/protobuf/descriptor.h>
#include <grpcpp/server_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "field/kserve.pb.h"
#include "field/openengine.pb.h"
#include "field/vllm_engine.pb.h"
#include "field/vllm_inference.pb.h"
#include "quire/v1/inference.pb.h"
#include "server/answers/answers_call.h"
#include "server/call/status_codec.h"
#include "server/generate/quire_format.h"
#include "server/wire/kserve/kserve_format.h"
#include "server/wire/openengine/openengine_format.h"
#include "server/wire/unknown_fields.h"
#include "server/wire/vllm/vllm_format.h"
#include "server/wire/vllm_engine/vllm_request.h"
#include "tests/fuzz/random_message.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;

constexpr int32_t kVocab = 258;
constexpr int32_t kEos = 257;
constexpr uint64_t kSeed = 7;

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

ServingModel TestModel() {
  ServingModel model;
  model.name = "test-model";
  model.setup.model.vocab_size = kVocab;
  model.setup.model.eos_token_ids = {kEos};
  model.setup.limits.max_model_len = 2048;
  return model;
}

struct Counts {
  int requests = 0, refusals = 0;
};

void Check(const absl::StatusOr<ParsedRequest>& parsed, const FuzzInput& input, Counts* counts) {
  if (parsed.ok()) {
    ++counts->requests;
    EXPECT_EQ(input.unknown, 0);
    ASSERT_NE(parsed->request, nullptr);
    EXPECT_TRUE(parsed->request->sampling.Validate(kVocab).ok());
    for (const int32_t id : parsed->request->prompt) EXPECT_TRUE(id >= 0 && id < kVocab) << id;
    return;
  }
  ++counts->refusals;
  const absl::Status& status = parsed.status();
  EXPECT_FALSE(status.message().empty());
  EXPECT_FALSE(FieldOf(status).empty() && ReasonOf(status).empty()) << status;
  if (input.unknown == 0) return;
  EXPECT_NE(FieldOf(status).find("field number " + std::to_string(input.unknown)),
            std::string::npos)
      << status;
}

// `strict`: a field that the type lacks is refused. Newer clients of ours may send some.
void FuzzFormat(const Descriptor& type, uint32_t seed, const MakeWireFormat& make,
                bool strict = true) {
  const ServingModel model = TestModel();
  Counts counts;
  ForInputs(type, seed, 3000, [&](const FuzzInput& input) {
    const grpc::CallbackServerContext context;
    const std::unique_ptr<WireFormat> format = make(model);
    const auto parsed = format->Decode(context, BufferOf(input.bytes), model, kSeed);
    Check(parsed, {input.bytes, strict ? input.unknown : 0}, &counts);
    if (parsed.ok()) return;
    EXPECT_FALSE(format->Named(parsed.status()).message().empty());
  });
  EXPECT_GT(counts.requests, 0) << "no input passes the checks";
  EXPECT_GT(counts.refusals, 0);
}

TEST(DecoderFuzzTest, Quire) {
  FuzzFormat(*v1::GenerateRequest::descriptor(), 7, GenerateFormat, /*strict=*/false);
  FuzzFormat(*v1::GenerateRequest::descriptor(), 8, GenerateUnaryFormat, /*strict=*/false);
}

// Before a request is decoded: the numbers of fields tell whether it asks for several answers.
TEST(DecoderFuzzTest, SeveralAnswersAreSeenInTheBytes) {
  int several = 0;
  ForInputs(*v1::GenerateRequest::descriptor(), 9, 4000, [&](const FuzzInput& input) {
    const bool asks = AsksForSeveral(BufferOf(input.bytes));
    v1::GenerateRequest request;
    if (!request.ParseFromString(input.bytes)) return;
    EXPECT_EQ(asks, request.n() > 1 || request.best_of() > 1) << request.ShortDebugString();
    several += asks;
  });
  EXPECT_GT(several, 0);
}

TEST(DecoderFuzzTest, Vllm) {
  const Descriptor& type = *vllm::GenerateRequest::descriptor();
  FuzzFormat(type, 1, VllmStreamFormat);
  FuzzFormat(type, 2, VllmUnaryFormat);
}

TEST(DecoderFuzzTest, OpenEngine) {
  FuzzFormat(*openengine::v1::GenerateRequest::descriptor(), 3, OpenEngineFormat);
}

// A random message has a chance of the right tensors only if it begins with one.
TEST(DecoderFuzzTest, Kserve) {
  InferCounters counters;
  const auto& type = *inference::ModelInferRequest::descriptor();
  inference::ModelInferRequest good;
  good.set_model_name("test-model");
  auto* tensor = good.add_inputs();
  tensor->set_name("text_input");
  tensor->set_datatype("BYTES");
  tensor->add_shape(1);
  tensor->mutable_contents()->add_bytes_contents("hi");
  const ServingModel model = TestModel();
  Counts counts;
  for (const bool stream : {false, true}) {
    ForInputs(type, stream ? 4 : 5, 3000, [&](const FuzzInput& input) {
      const auto make = stream ? ModelStreamInferFormat : ModelInferFormat;
      for (const std::string& head : {std::string(), good.SerializeAsString()}) {
        const grpc::CallbackServerContext context;
        const std::unique_ptr<WireFormat> format = make(model, &counters);
        const auto parsed = format->Decode(context, BufferOf(head + input.bytes), model, kSeed);
        Check(parsed, input, &counts);
      }
    });
  }
  EXPECT_GT(counts.requests, 0);
  EXPECT_GT(counts.refusals, 0);
}

TEST(DecoderFuzzTest, VllmEngine) {
  const ServingModel model = TestModel();
  Counts counts;
  ForInputs(*vllm::grpc::engine::GenerateRequest::descriptor(), 6, 4000,
            [&](const FuzzInput& input) {
              vllm::grpc::engine::GenerateRequest request;
              absl::Status status = ParseKnownFields(BufferOf(input.bytes), &request);
              const auto choices = ChoicesOf(request);
              if (status.ok()) status = choices.status();
              if (!status.ok()) return Check(status, input, &counts);
              EXPECT_TRUE(*choices >= 1 && *choices <= kMaxChoices);
              Check(DecodeVllm(request, model, kSeed), input, &counts);
            });
  EXPECT_GT(counts.requests, 0);
  EXPECT_GT(counts.refusals, 0);
}

}  // namespace
}  // namespace quire
