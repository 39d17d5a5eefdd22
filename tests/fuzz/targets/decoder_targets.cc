// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/decoder_targets.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/server_context.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "field/kserve.pb.h"
#include "field/openengine.pb.h"
#include "field/vllm_control.pb.h"
#include "field/vllm_engine.pb.h"
#include "field/vllm_inference.pb.h"
#include "kernels/check.h"
#include "quire/v1/control.pb.h"
#include "quire/v1/inference.pb.h"
#include "quire/v1/jobs.pb.h"
#include "quire/v1/sessions.pb.h"
#include "server/answers/answers_call.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/generate/quire_format.h"
#include "server/wire/kserve/kserve_format.h"
#include "server/wire/openengine/openengine_format.h"
#include "server/wire/unknown_fields.h"
#include "server/wire/vllm/vllm_format.h"
#include "server/wire/vllm_engine/vllm_request.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;

constexpr uint64_t kSeed = 7;

grpc::ByteBuffer BufferOf(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

void CheckRefusal(const absl::Status& status) {
  CHECK(!status.message().empty());
  CHECK(!FieldOf(status).empty() || !ReasonOf(status).empty());
}

absl::StatusOr<ParsedRequest> Checked(absl::StatusOr<ParsedRequest> parsed) {
  if (!parsed.ok()) {
    CheckRefusal(parsed.status());
    return parsed;
  }
  const int32_t vocab = FuzzModel().setup.model.vocab_size;
  CHECK(parsed->request != nullptr);
  CHECK(parsed->request->sampling.Validate(vocab).ok());
  for (const int32_t id : parsed->request->prompt) CHECK(id >= 0 && id < vocab);
  return parsed;
}

std::string ReadFile(const std::string& name) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The requests of every method.
std::vector<const Descriptor*> RequestTypes() {
  std::vector<const Descriptor*> types;
  for (const auto* one :
       {v1::GenerateRequest::descriptor(), v1::Session::descriptor(), v1::ServerInfo::descriptor(),
        v1::Job::descriptor(), vllm::GenerateRequest::descriptor(), vllm::ServerInfo::descriptor(),
        vllm::grpc::engine::GenerateRequest::descriptor(), openengine::v1::ServerInfo::descriptor(),
        inference::ModelInferRequest::descriptor()}) {
    const google::protobuf::FileDescriptor& file = *one->file();
    for (int s = 0; s < file.service_count(); ++s) {
      for (int m = 0; m < file.service(s)->method_count(); ++m) {
        types.push_back(file.service(s)->method(m)->input_type());
      }
    }
  }
  return types;
}

// The message's bytes, with the entries of maps in the order of their keys: else those of two equal
// maps may have two orders.
std::string InOrder(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  CHECK(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

}  // namespace

const ServingModel& FuzzModel() {
  static const ServingModel& model = *[] {
    auto* const made = new ServingModel;
    made->name = "test-model";
    made->tokenizer =
        Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/llama3.json").value();
    made->chat_templates = ChatTemplates::Of(ReadFile("chat_templates/families/llama31.jinja"),
                                             {{"bos_token", jinja::Value::Of("<s>")}})
                               .value();
    made->reasoning_format = FindReasoningFormat("deepseek_r1");
    made->call_format = FindCallFormat("llama3_json");
    made->setup.model.vocab_size = made->tokenizer->size();
    made->setup.model.eos_token_ids = {made->tokenizer->size() - 1};
    made->setup.limits.max_model_len = 2048;
    return made;
  }();
  return model;
}

absl::StatusOr<ParsedRequest> DecodeChecked(const MakeWireFormat& make, std::string_view bytes) {
  const google::protobuf::LogSilencer silent;  // of text that is not UTF-8
  const grpc::CallbackServerContext context;
  const std::unique_ptr<WireFormat> format = make(FuzzModel());
  auto parsed = Checked(format->Decode(context, BufferOf(bytes), FuzzModel(), kSeed));
  if (!parsed.ok()) CHECK(!format->Named(parsed.status()).message().empty());
  return parsed;
}

absl::StatusOr<ParsedRequest> DecodeVllmEngineChecked(std::string_view bytes) {
  const google::protobuf::LogSilencer silent;
  vllm::grpc::engine::GenerateRequest request;
  absl::Status status = ParseKnownFields(BufferOf(bytes), &request);
  const auto choices = ChoicesOf(request);
  if (status.ok()) status = choices.status();
  if (!status.ok()) return Checked(status);
  CHECK(*choices >= 1 && *choices <= kMaxChoices);
  return Checked(DecodeVllm(request, FuzzModel(), kSeed));
}

void FuzzQuireRequest(std::string_view bytes) {
  (void)DecodeChecked(GenerateFormat, bytes);
  (void)DecodeChecked(GenerateUnaryFormat, bytes);
  const google::protobuf::LogSilencer silent;
  v1::GenerateRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  CHECK_EQ(AsksForSeveral(BufferOf(bytes)), request.n() > 1 || request.best_of() > 1);
}

void FuzzVllmRequest(std::string_view bytes) {
  (void)DecodeChecked(VllmStreamFormat, bytes);
  (void)DecodeChecked(VllmUnaryFormat, bytes);
}

void FuzzOpenEngineRequest(std::string_view bytes) { (void)DecodeChecked(OpenEngineFormat, bytes); }

void FuzzKserveRequest(std::string_view bytes) {
  static InferCounters& counters = *new InferCounters;
  for (const auto make : {ModelInferFormat, ModelStreamInferFormat}) {
    (void)DecodeChecked([make](const ServingModel& model) { return make(model, &counters); },
                        bytes);
  }
}

void FuzzVllmEngineRequest(std::string_view bytes) { (void)DecodeVllmEngineChecked(bytes); }

void FuzzPrompt(std::string_view bytes) {
  auto parsed = DecodeChecked(GenerateFormat, bytes);
  if (!parsed.ok()) return;
  const absl::Status status = TokenizePrompt(FuzzModel(), &*parsed);
  if (!status.ok()) return CheckRefusal(status);
  const int32_t vocab = FuzzModel().setup.model.vocab_size;
  for (const int32_t id : parsed->request->prompt) CHECK(id >= 0 && id < vocab);
}

void FuzzWire(std::string_view bytes) {
  static const auto& types = *new std::vector<const Descriptor*>(RequestTypes());
  if (bytes.empty()) return;
  const google::protobuf::LogSilencer silent;
  const auto* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(
      types[static_cast<uint8_t>(bytes[0]) % types.size()]);
  bytes.remove_prefix(1);
  const std::unique_ptr<google::protobuf::Message> ours(prototype->New()), theirs(prototype->New());
  const absl::Status status = ParseMessage(BufferOf(bytes), ours.get());
  CHECK_EQ(status.ok(), theirs->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  if (!status.ok()) return CheckRefusal(status);
  CHECK(InOrder(*ours) == InOrder(*theirs));
  const absl::Status known = ParseKnownFields(BufferOf(bytes), ours.get());
  if (!known.ok()) return CheckRefusal(known);
}

}  // namespace quire
