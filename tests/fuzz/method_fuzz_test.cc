// Every method of our own and of other projects' protocols over gRPC, with random messages,
// messages with fields that this server does not know, and mutated bytes: each is answered or
// refused with a name, and the server lives on.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
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

using Files = std::vector<const google::protobuf::FileDescriptor*>;

Files Ours() {
  return {v1::GenerateRequest::descriptor()->file(), v1::Session::descriptor()->file(),
          v1::ServerInfo::descriptor()->file()};
}

Files Theirs() {
  return {vllm::GenerateRequest::descriptor()->file(), vllm::ServerInfo::descriptor()->file(),
          vllm::grpc::engine::GenerateRequest::descriptor()->file(),
          openengine::v1::ServerInfo::descriptor()->file(),
          inference::ModelInferRequest::descriptor()->file()};
}

std::vector<const MethodDescriptor*> Methods(const Files& files) {
  std::vector<const MethodDescriptor*> methods;
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

// Methods whose streams go on until their client ends them, or for as long as it asks.
bool Endless(const MethodDescriptor& method) {
  static const std::set<std::string> names = {"SubscribeKvEvents", "Watch", "Trace"};
  return names.count(method.name()) > 0;
}

// The whole call, whatever it streams.
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
  if (Endless(method)) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(30));
  }
  const std::string path = "/" + method.service()->full_name() + "/" + method.name();
  const auto call = stub.PrepareCall(&context, path, &queue);
  call->StartCall(nullptr);
  step();
  call->WriteLast(message, grpc::WriteOptions(), nullptr);
  step();
  Reply reply;
  for (grpc::ByteBuffer answer;;) {
    call->Read(&answer, nullptr);
    if (!step()) break;
    grpc::Slice slice;
    EXPECT_TRUE(answer.DumpToSingleSlice(&slice).ok());
    reply.last.assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
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
  if (input.unknown == 0 || code == Code::UNIMPLEMENTED || code == Code::DEADLINE_EXCEEDED) return;
  EXPECT_NE(words.find("field number " + std::to_string(input.unknown)), std::string::npos)
      << method.full_name() << ": " << words;
}

// `strict`: a field that the type lacks is refused. Newer clients of ours may send some.
void FuzzMethods(const Files& files, uint32_t seed, bool strict) {
  for (const MethodDescriptor* method : Methods(files)) {
    // A server for each: sessions that one method leaves would let FlushCache wait for its time.
    TestServer server({.max_model_len = 64});
    ForInputs(*method->input_type(), ++seed, 40, [&](const FuzzInput& input) {
      const FuzzInput given = {input.bytes, strict ? input.unknown : 0};
      CheckReply(CallOnce(server, *method, input.bytes), *method, given);
    });
    // A drain is what some ask for.
    v1::UndrainResponse undrained;
    grpc::ClientContext context;
    const grpc::Status back = server.control().Undrain(&context, {}, &undrained);
    if (back.error_code() == Code::FAILED_PRECONDITION) continue;
    EXPECT_TRUE(Stream(server.inference(), AskFor(3)).status.ok()) << method->full_name();
  }
}

TEST(MethodFuzzTest, EveryMethodOfOursAnswersAndTheServerLivesOn) {
  FuzzMethods(Ours(), 500, /*strict=*/false);
}
TEST(MethodFuzzTest, EveryMethodOfTheirsAnswersAndTheServerLivesOn) {
  FuzzMethods(Theirs(), 100, /*strict=*/true);
}

}  // namespace
}  // namespace quire
