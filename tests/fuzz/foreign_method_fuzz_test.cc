// Every method of other projects' protocols over gRPC, with random messages, messages with fields
// that this server does not know, and mutated bytes: each is answered or refused with a name, and
// the server lives on.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "field/kserve.pb.h"
#include "field/openengine.pb.h"
#include "field/vllm_control.pb.h"
#include "field/vllm_engine.pb.h"
#include "field/vllm_inference.pb.h"
#include "tests/fuzz/random_message.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using google::protobuf::MethodDescriptor;
using Code = grpc::StatusCode;

std::vector<const MethodDescriptor*> Methods() {
  std::vector<const MethodDescriptor*> methods;
  const std::vector<const google::protobuf::FileDescriptor*> files = {
      vllm::GenerateRequest::descriptor()->file(), vllm::ServerInfo::descriptor()->file(),
      vllm::grpc::engine::GenerateRequest::descriptor()->file(),
      openengine::v1::ServerInfo::descriptor()->file(),
      inference::ModelInferRequest::descriptor()->file()};
  for (const auto* file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(file->service(s)->method(m));
      }
    }
  }
  return methods;
}

struct Reply {
  grpc::Status status;
  std::string last;  // message
};

// The whole call, whatever it streams. A subscription is cancelled when the server has taken it.
Reply CallOnce(TestServer& server, const MethodDescriptor& method, const std::string& bytes) {
  const grpc::Slice request(bytes);
  const grpc::ByteBuffer message(&request, 1);
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const std::string path = "/" + method.service()->full_name() + "/" + method.name();
  const auto call = stub.PrepareCall(&context, path, &queue);
  call->StartCall(nullptr);
  step();
  call->WriteLast(message, grpc::WriteOptions(), nullptr);
  step();
  Reply reply;
  if (method.name() == "SubscribeKvEvents") {
    call->ReadInitialMetadata(nullptr);
    step();
    context.TryCancel();
  } else {
    for (grpc::ByteBuffer answer;;) {
      call->Read(&answer, nullptr);
      if (!step()) break;
      grpc::Slice slice;
      EXPECT_TRUE(answer.DumpToSingleSlice(&slice).ok());
      reply.last.assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  call->Finish(&reply.status, nullptr);
  step();
  return reply;
}

// The words in which a call refuses its request: of the status, or of a message of the protocol.
std::string WordsOf(const Reply& reply, const MethodDescriptor& method) {
  std::string words = reply.status.error_message();
  if (method.output_type() == inference::ModelStreamInferResponse::descriptor()) {
    inference::ModelStreamInferResponse response;
    if (response.ParseFromString(reply.last)) words += response.error_message();
  }
  return words;
}

void CheckReply(const Reply& reply, const MethodDescriptor& method, const FuzzInput& input) {
  const Code code = reply.status.error_code();
  const std::string words = WordsOf(reply, method);
  const std::set<Code> ours = {Code::INTERNAL, Code::UNKNOWN, Code::DATA_LOSS, Code::ABORTED};
  EXPECT_EQ(ours.count(code), 0u) << method.full_name() << ": " << words;
  EXPECT_TRUE(code == Code::OK || !words.empty()) << method.full_name();
  if (code == Code::INVALID_ARGUMENT) {
    EXPECT_FALSE(ViolatedField(reply.status).empty() && Reason(reply.status).empty())
        << method.full_name() << ": " << words;
  }
  if (input.unknown == 0 || code == Code::UNIMPLEMENTED || code == Code::CANCELLED) return;
  EXPECT_NE(words.find("field number " + std::to_string(input.unknown)), std::string::npos)
      << method.full_name() << ": " << words;
}

TEST(ForeignMethodFuzzTest, EveryMethodAnswersAndTheServerLivesOn) {
  uint32_t seed = 100;
  for (const MethodDescriptor* method : Methods()) {
    // A server for each: sessions that one method leaves would let FlushCache wait for its time.
    TestServer server({.max_model_len = 64});
    ForInputs(*method->input_type(), ++seed, 40, [&](const FuzzInput& input) {
      CheckReply(CallOnce(server, *method, input.bytes), *method, input);
    });
    EXPECT_TRUE(Stream(server.inference(), AskFor(3)).status.ok()) << method->full_name();
  }
}

}  // namespace
}  // namespace quire
