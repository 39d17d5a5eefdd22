// The processor time of one message with tokens, in each protocol that has a format of its own: of
// one token, and of as many as a server without a pace joins. Checks first that the message has
// them all.
#include <benchmark/benchmark.h>
#include <grpcpp/server_context.h>

#include <string>

#include "field/openengine.pb.h"
#include "field/vllm_inference.pb.h"
#include "kernels/check.h"
#include "quire/v1/inference.pb.h"
#include "server/generate/quire_format.h"
#include "server/wire/openengine/openengine_format.h"
#include "server/wire/vllm/vllm_format.h"

namespace quire {
namespace {

constexpr int32_t kVocab = 128'256;
constexpr char kTextOfToken[] = "word ";

OutputDelta DeltaOf(int tokens) {
  OutputDelta delta;
  for (int i = 0; i < tokens; ++i) {
    delta.token_ids.push_back(static_cast<uint32_t>(i * 7919 % kVocab));
    delta.text += kTextOfToken;
  }
  delta.tokens = static_cast<uint32_t>(tokens);
  delta.cumulative = delta.tokens;
  return delta;
}

// `count` says how many tokens a message has.
template <typename Count>
void Measure(benchmark::State& state, const MakeWireFormat& make, const std::string& request,
             const Count& count) {
  ServingModel model;
  model.setup.model.vocab_size = kVocab;
  model.setup.limits.max_model_len = 8192;
  const std::unique_ptr<WireFormat> format = make(model);
  const grpc::CallbackServerContext context;
  const grpc::Slice slice(request);
  CHECK(format->Decode(context, grpc::ByteBuffer(&slice, 1), model, /*seed=*/1).ok());
  const OutputDelta delta = DeltaOf(static_cast<int>(state.range(0)));
  const OutputOptions output;
  CHECK_EQ(count(*format->Tokens(delta, output)), state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(format->Tokens(delta, output));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

template <typename Message>
Message Parsed(const std::string& bytes) {
  Message message;
  CHECK(message.ParseFromString(bytes));
  return message;
}

void BM_Quire(benchmark::State& state) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  Measure(state, GenerateFormat, request.SerializeAsString(), [](const std::string& bytes) {
    return Parsed<v1::GenerateResponse>(bytes).tokens().token_ids_size();
  });
}
void BM_OpenEngine(benchmark::State& state) {
  openengine::v1::GenerateRequest request;
  request.set_request_id("bench-1");
  request.mutable_token_ids()->add_ids(5);
  Measure(state, OpenEngineFormat, request.SerializeAsString(), [](const std::string& bytes) {
    return Parsed<openengine::v1::GenerateResponse>(bytes).token().tokens_size();
  });
}
void BM_Vllm(benchmark::State& state) {
  vllm::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  request.mutable_response()->set_output_token_ids(true);
  Measure(state, VllmStreamFormat, request.SerializeAsString(), [](const std::string& bytes) {
    return Parsed<vllm::GenerateResponse>(bytes).outputs().token_ids_size();
  });
}
BENCHMARK(BM_Quire)->Arg(1)->Arg(200);
BENCHMARK(BM_OpenEngine)->Arg(1)->Arg(200);
BENCHMARK(BM_Vllm)->Arg(1)->Arg(200);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
