// A field that our .proto files do not have is refused wherever it stands.
// Covers server/wire/unknown_fields.cc
#include "server/wire/unknown_fields.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <string>

#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Adds field `number` to a message that has no such field.
template <typename Message>
void AddUnknown(int number, Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
}

std::string Refused(const google::protobuf::Message& message) {
  const absl::Status status = CheckNoUnknownFields(message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message().data(), status.message().size());
}

TEST(UnknownFieldsTest, KnownFieldsPass) {
  v1::GenerateRequest request;
  EXPECT_TRUE(CheckNoUnknownFields(request).ok());
  request.mutable_chat()->add_messages()->set_role("user");
  (*request.mutable_sampling()->mutable_logit_bias())[7] = 1.0f;
  EXPECT_TRUE(CheckNoUnknownFields(request).ok());
}

TEST(UnknownFieldsTest, NamesTheNumberAtTheTop) {
  v1::GenerateRequest request;
  AddUnknown(900, &request);
  EXPECT_THAT(Refused(request), HasSubstr("field number 900: this server does not know"));
}

TEST(UnknownFieldsTest, NamesThePathOfANestedField) {
  v1::GenerateRequest request;
  AddUnknown(77, request.mutable_sampling());
  EXPECT_THAT(Refused(request), HasSubstr("sampling.field number 77:"));
}

TEST(UnknownFieldsTest, NamesTheElementOfARepeatedField) {
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages();
  AddUnknown(5, request.mutable_chat()->add_messages());
  EXPECT_THAT(Refused(request), HasSubstr("chat.messages[1].field number 5:"));
}

TEST(UnknownFieldsTest, EveryWireTypeIsRefusedAfterParsing) {
  // Field 1000 as varint, 64 bits, bytes and 32 bits.
  for (const std::string& tail :
       {std::string("\xC0\x3E\x01", 3), std::string("\xC1\x3E") + std::string(8, '\0'),
        std::string("\xC2\x3E\x02hi", 5), std::string("\xC5\x3E") + std::string(4, '\0')}) {
    v1::GenerateRequest request;
    request.set_text("hi");
    const std::string bytes = request.SerializeAsString() + tail;
    const grpc::Slice slice(bytes);
    v1::GenerateRequest parsed;
    const absl::Status status = ParseKnownFields(grpc::ByteBuffer(&slice, 1), &parsed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message().data(), status.message().size()),
                HasSubstr("field number 1000"));
  }
}

TEST(UnknownFieldsTest, MalformedBytesNameTheirField) {
  const grpc::Slice slice(std::string("\x1A\x02\xFF\xFE", 4));  // text, not valid UTF-8
  v1::GenerateRequest parsed;
  const absl::Status status = ParseKnownFields(grpc::ByteBuffer(&slice, 1), &parsed);
  EXPECT_THAT(std::string(status.message().data(), status.message().size()),
              HasSubstr("text: not valid UTF-8 at byte 0"));
}

}  // namespace
}  // namespace quire
