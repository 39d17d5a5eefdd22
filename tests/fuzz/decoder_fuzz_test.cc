// The decoders of requests for text, ours and other projects': random messages, messages with
// fields that this server does not know, and mutated bytes. Each becomes a valid request or a
// refusal with a name.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <string>

#include "field/kserve.pb.h"
#include "field/openengine.pb.h"
#include "field/vllm_engine.pb.h"
#include "field/vllm_inference.pb.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/generate/quire_format.h"
#include "server/wire/kserve/kserve_format.h"
#include "server/wire/openengine/openengine_format.h"
#include "server/wire/vllm/vllm_format.h"
#include "tests/fuzz/random_message.h"
#include "tests/fuzz/targets/decoder_targets.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;

struct Counts {
  int requests = 0, refusals = 0;
};

// DecodeChecked has looked at the request, or at the words of the refusal.
void Count(const absl::StatusOr<ParsedRequest>& parsed, int unknown, Counts* counts) {
  ++(parsed.ok() ? counts->requests : counts->refusals);
  if (unknown == 0) return;
  EXPECT_NE(FieldOf(parsed.status()).find("field number " + std::to_string(unknown)),
            std::string::npos)
      << parsed.status();
}

// `strict`: a field that the type lacks is refused. Newer clients of ours may send some.
void FuzzFormat(const Descriptor& type, uint32_t seed, const MakeWireFormat& make,
                bool strict = true) {
  Counts counts;
  ForInputs(type, seed, 3000, [&](const FuzzInput& input) {
    Count(DecodeChecked(make, input.bytes), strict ? input.unknown : 0, &counts);
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
    v1::GenerateRequest request;
    if (!request.ParseFromString(input.bytes)) return;
    FuzzQuireRequest(input.bytes);
    several += request.n() > 1 || request.best_of() > 1;
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
  Counts counts;
  for (const bool stream : {false, true}) {
    const MakeWireFormat make = [&counters, stream](const ServingModel& model) {
      return stream ? ModelStreamInferFormat(model, &counters) : ModelInferFormat(model, &counters);
    };
    ForInputs(type, stream ? 4 : 5, 3000, [&](const FuzzInput& input) {
      for (const std::string& head : {std::string(), good.SerializeAsString()}) {
        Count(DecodeChecked(make, head + input.bytes), input.unknown, &counts);
      }
    });
  }
  EXPECT_GT(counts.requests, 0);
  EXPECT_GT(counts.refusals, 0);
}

TEST(DecoderFuzzTest, VllmEngine) {
  Counts counts;
  ForInputs(*vllm::grpc::engine::GenerateRequest::descriptor(), 6, 4000,
            [&](const FuzzInput& input) {
              Count(DecodeVllmEngineChecked(input.bytes), input.unknown, &counts);
            });
  EXPECT_GT(counts.requests, 0);
  EXPECT_GT(counts.refusals, 0);
}

}  // namespace
}  // namespace quire
