// The .proto files of other projects' protocols, in our words, against lists of the originals'
// names, numbers and types (tests/testdata/field), which were written from the originals alone. And
// every method of the originals is answered, if only with what is missing.
// Covers server/front/field_services.cc
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "field/kserve.pb.h"
#include "field/openengine.pb.h"
#include "field/vllm_control.pb.h"
#include "field/vllm_inference.pb.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using Facts = std::set<std::string>;

std::string TypeOf(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

std::string FactOf(const FieldDescriptor& field) {
  std::string fact = "field " + field.full_name() + " " + std::to_string(field.number()) + " " +
                     TypeOf(field) + " ";
  const bool optional = !field.is_repeated() && field.has_optional_keyword();
  fact += field.is_repeated() ? "repeated" : optional ? "optional" : "singular";
  if (field.real_containing_oneof() != nullptr) {
    fact += " oneof=" + field.real_containing_oneof()->name();
  }
  return fact;
}

// Values of an enum are named beside it, not in it, by their full name.
void AddEnum(const EnumDescriptor& type, Facts* facts) {
  for (int i = 0; i < type.value_count(); ++i) {
    facts->insert("value " + type.full_name() + "." + type.value(i)->name() + " " +
                  std::to_string(type.value(i)->number()));
  }
}

void AddMessage(const Descriptor& type, Facts* facts) {
  facts->insert("message " + type.full_name());
  for (int i = 0; i < type.field_count(); ++i) facts->insert(FactOf(*type.field(i)));
  for (int i = 0; i < type.enum_type_count(); ++i) AddEnum(*type.enum_type(i), facts);
  for (int i = 0; i < type.nested_type_count(); ++i) AddMessage(*type.nested_type(i), facts);
}

void AddFile(const FileDescriptor& file, Facts* facts) {
  for (int i = 0; i < file.message_type_count(); ++i) AddMessage(*file.message_type(i), facts);
  for (int i = 0; i < file.enum_type_count(); ++i) AddEnum(*file.enum_type(i), facts);
  for (int i = 0; i < file.service_count(); ++i) {
    for (int m = 0; m < file.service(i)->method_count(); ++m) {
      const MethodDescriptor& method = *file.service(i)->method(m);
      facts->insert(
          "method " + file.service(i)->full_name() + "/" + method.name() + " " +
          (method.client_streaming() ? "stream " : "") + method.input_type()->full_name() + " " +
          (method.server_streaming() ? "stream " : "") + method.output_type()->full_name());
    }
  }
}

Facts Listed(const std::string& name) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/testdata/field/" + name + ".txt");
  Facts facts;
  for (std::string line; std::getline(file, line);) facts.insert(line);
  EXPECT_FALSE(facts.empty()) << name;
  return facts;
}

TEST(FieldFactsTest, VllmIsAsTheOriginal) {
  Facts ours;
  AddFile(*vllm::GenerateRequest::descriptor()->file(), &ours);
  AddFile(*vllm::ServerInfo::descriptor()->file(), &ours);
  EXPECT_THAT(ours, ::testing::ContainerEq(Listed("vllm")));
}

TEST(FieldFactsTest, OpenEngineIsAsTheOriginal) {
  Facts ours;
  AddFile(*openengine::v1::ServerInfo::descriptor()->file(), &ours);
  EXPECT_THAT(ours, ::testing::ContainerEq(Listed("openengine")));
}

// Our file leaves out what no method of ours uses.
TEST(FieldFactsTest, WhatWeHaveOfKserveIsAsTheOriginal) {
  Facts ours;
  AddFile(*inference::ModelInferRequest::descriptor()->file(), &ours);
  const Facts original = Listed("kserve");
  for (const std::string& fact : ours) EXPECT_EQ(original.count(fact), 1u) << fact;
  // Requests are whole: a field left out would be refused as unknown.
  for (const std::string& fact : original) {
    const std::string request = "field inference.ModelInferRequest.";
    if (fact.rfind(request, 0) != 0) continue;
    EXPECT_EQ(ours.count(fact), 1u) << fact;
  }
}

// The answer to a call of `path` with an empty message.
grpc::Status CallOnce(TestServer& server, const std::string& path) {
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, path, grpc::ByteBuffer(), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

TEST(FieldFactsTest, EveryMethodOfTheOriginalsIsAnswered) {
  TestServer server;
  for (const char* name : {"vllm", "openengine", "kserve"}) {
    int methods = 0;
    for (const std::string& fact : Listed(name)) {
      if (fact.rfind("method ", 0) != 0) continue;
      ++methods;
      const std::string path = "/" + fact.substr(7, fact.find(' ', 7) - 7);
      const grpc::Status status = CallOnce(server, path);
      EXPECT_EQ(status.error_message().find("no such method"), std::string::npos) << path;
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
        EXPECT_EQ(Reason(status), "NOT_SERVED") << path;
      }
    }
    EXPECT_GT(methods, 10) << name;
  }
  EXPECT_NE(CallOnce(server, "/vllm.Control/Dance").error_message().find("no such method"),
            std::string::npos);
}

}  // namespace
}  // namespace quire
