// A bounded walk over protobuf wire format, run only after a parse has failed.
#include "server/call/wire_check.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>

#include "server/call/status_codec.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kMaxDepth = 16;

std::string Join(const std::string& path, const FieldDescriptor* field, uint32_t number) {
  const std::string name =
      field != nullptr ? field->name() : "field number " + std::to_string(number);
  return path.empty() ? name : path + "." + name;
}

absl::Status Walk(std::string_view bytes, const Descriptor* type, const std::string& path,
                  int depth);

// The payload of one length-delimited field.
absl::Status CheckDelimited(std::string_view payload, const FieldDescriptor* field,
                            const std::string& name, int depth) {
  if (field == nullptr) return absl::OkStatus();
  if (field->type() == FieldDescriptor::TYPE_STRING) {
    const size_t valid = ValidUtf8Prefix(payload);
    if (valid != payload.size()) {
      return InvalidField(name, "not valid UTF-8 at byte " + std::to_string(valid));
    }
  } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
    return Walk(payload, field->message_type(), name, depth + 1);
  }
  return absl::OkStatus();
}

absl::Status Walk(std::string_view bytes, const Descriptor* type, const std::string& path,
                  int depth) {
  const std::string whole = path.empty() ? "request" : path;
  if (depth > kMaxDepth) return InvalidField(whole, "nested too deeply");
  CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  while (static_cast<size_t>(input.CurrentPosition()) < bytes.size()) {
    const std::string at = "malformed protobuf at byte " + std::to_string(input.CurrentPosition());
    const uint32_t tag = input.ReadTag();
    const uint32_t number = tag >> 3;
    if (tag == 0 || number == 0) return InvalidField(whole, at);
    const FieldDescriptor* field = type->FindFieldByNumber(static_cast<int>(number));
    const std::string name = Join(path, field, number);
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&input, tag)) return InvalidField(name, at);
      continue;
    }
    uint32_t length = 0;
    if (!input.ReadVarint32(&length) ||
        length > bytes.size() - static_cast<size_t>(input.CurrentPosition())) {
      return InvalidField(name, at + ": the field is cut short");
    }
    const std::string_view payload = bytes.substr(input.CurrentPosition(), length);
    if (absl::Status status = CheckDelimited(payload, field, name, depth); !status.ok())
      return status;
    input.Skip(static_cast<int>(length));
  }
  return absl::OkStatus();
}

// Bytes of the sequence that `lead` opens, and the range its second byte must lie in (Unicode 15,
// table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF). 0: not a lead byte.
size_t SequenceLength(uint8_t lead, uint8_t* low, uint8_t* high) {
  *low = 0x80;
  *high = 0xBF;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return 2;
  if (lead == 0xE0) *low = 0xA0;
  if (lead == 0xED) *high = 0x9F;
  if (lead == 0xF0) *low = 0x90;
  if (lead == 0xF4) *high = 0x8F;
  return lead < 0xF0 ? 3 : 4;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint8_t low = 0;
    uint8_t high = 0;
    const size_t length = SequenceLength(static_cast<uint8_t>(text[i]), &low, &high);
    if (length == 0 || text.size() - i < length) return i;
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if (byte < low || byte > high) return i;
      low = 0x80;
      high = 0xBF;
    }
    i += length;
  }
  return i;
}

absl::Status ExplainMalformed(std::string_view bytes, const Descriptor& type) {
  absl::Status status = Walk(bytes, &type, "", 0);
  if (!status.ok()) return status;
  return InvalidField("request", "malformed protobuf for " + type.full_name());
}

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  // The library calls the method of a call that was cancelled, or whose deadline passed, before its
  // message was there: without a buffer, where an empty message has an empty one.
  if (!bytes.Valid()) return absl::CancelledError("the call ended before its message was there");
  // The reader takes its own reference to the slices; the interface is not const-correct.
  grpc::ByteBuffer copy = bytes;
  grpc::ProtoBufferReader reader(&copy);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  grpc::Slice slice;
  if (!copy.DumpToSingleSlice(&slice).ok()) {
    return InvalidField("request", "the message could not be read");
  }
  return ExplainMalformed(
      std::string_view(reinterpret_cast<const char*>(slice.begin()), slice.size()),
      *message->GetDescriptor());
}

}  // namespace quire
