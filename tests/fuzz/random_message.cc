// By reflection, so a field that is added to a protocol is filled without a line here.
#include "tests/fuzz/random_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <iterator>
#include <limits>
#include <memory>

#include "tests/fuzz/mutator.h"

namespace quire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 5;
constexpr size_t kMaxElements = 4;
// No protocol has a field of a greater number, and 19000 to 19999 are protobuf's own.
constexpr int kUnknown = 4000;

// The entries of maps in the order of their keys, so that a seed gives the same bytes in every run.
std::string BytesOf(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    message.SerializePartialToCodedStream(&out);
  }
  return bytes;
}

}  // namespace

int64_t RandomMessage::Whole() {
  static constexpr int64_t kEdges[] = {0,
                                       1,
                                       2,
                                       5,
                                       64,
                                       65,
                                       255,
                                       256,
                                       257,
                                       1000,
                                       -1,
                                       -2,
                                       std::numeric_limits<int32_t>::max(),
                                       std::numeric_limits<int32_t>::min(),
                                       std::numeric_limits<uint32_t>::max(),
                                       std::numeric_limits<int64_t>::max(),
                                       std::numeric_limits<int64_t>::min()};
  return kEdges[Below(std::size(kEdges))];
}

double RandomMessage::Real() {
  static constexpr double kEdges[] = {0,
                                      1,
                                      0.5,
                                      -0.0,
                                      -1,
                                      2,
                                      600,
                                      1e-45,
                                      1e30,
                                      1e300,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};
  return kEdges[Below(std::size(kEdges))];
}

std::string RandomMessage::Text() {
  static const std::string kTexts[] = {"",
                                       "a",
                                       "test-model",
                                       "hi there",
                                       "na\xC3\xAFve",
                                       "text_input",
                                       "max_tokens",
                                       "BYTES",
                                       "INT32",
                                       "FP32",
                                       "BOOL",
                                       "stream",
                                       "temperature",
                                       "{\"top_k\": 3}",
                                       "{",
                                       "1",
                                       std::string("\0", 1),
                                       std::string(300, 'x'),
                                       "\x01\x00\x00\x00z",
                                       "../x"};
  return kTexts[Below(std::size(kTexts))];
}

void RandomMessage::SetField(Message* message, const FieldDescriptor* field, int depth) {
  const Reflection* with = message->GetReflection();
  const bool list = field->is_repeated();
  const auto whole = Whole();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<int32_t>(whole);
      return list ? with->AddInt32(message, field, value) : with->SetInt32(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? with->AddInt64(message, field, whole) : with->SetInt64(message, field, whole);
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto value = static_cast<uint32_t>(whole);
      return list ? with->AddUInt32(message, field, value) : with->SetUInt32(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto value = static_cast<uint64_t>(whole);
      return list ? with->AddUInt64(message, field, value) : with->SetUInt64(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? with->AddDouble(message, field, Real())
                  : with->SetDouble(message, field, Real());
    case FieldDescriptor::CPPTYPE_FLOAT: {
      static constexpr float kFloats[] = {0, 1, 0.5f, -1, 2, 600, 1e30f};
      const bool wild = Below(4) == 0;
      const float edge = Below(2) == 0 ? std::numeric_limits<float>::infinity()
                                       : std::numeric_limits<float>::quiet_NaN();
      const float value = wild ? edge : kFloats[Below(std::size(kFloats))];
      return list ? with->AddFloat(message, field, value) : with->SetFloat(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = Below(2) == 0;
      return list ? with->AddBool(message, field, value) : with->SetBool(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto value = static_cast<int>(Below(6));  // also ones that the enum lacks
      return list ? with->AddEnumValue(message, field, value)
                  : with->SetEnumValue(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? with->AddString(message, field, Text())
                  : with->SetString(message, field, Text());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(list ? with->AddMessage(message, field) : with->MutableMessage(message, field),
                  depth + 1);
  }
}

void RandomMessage::Fill(Message* message, int depth) {
  const size_t sparse = 2 + Below(12);  // one field in so many is set
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (Below(sparse) != 0 || (nested && depth == kMaxDepth)) continue;
    const size_t count = field->is_repeated() ? 1 + Below(kMaxElements) : 1;
    for (size_t element = 0; element < count; ++element) SetField(message, field, depth);
  }
}

int RandomMessage::AddUnknown(Message* message) {
  const Reflection* with = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  with->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool message_field = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!message_field || field->is_map() || Below(2) == 0) continue;
    return AddUnknown(field->is_repeated() ? with->MutableRepeatedMessage(message, field, 0)
                                           : with->MutableMessage(message, field));
  }
  const int number = kUnknown + static_cast<int>(Below(1000));
  google::protobuf::UnknownFieldSet* unknown = with->MutableUnknownFields(message);
  switch (Below(4)) {
    case 0: unknown->AddVarint(number, random_()); break;
    case 1: unknown->AddFixed32(number, 7); break;
    case 2: unknown->AddFixed64(number, 7); break;
    default: unknown->AddLengthDelimited(number, Text());
  }
  return number;
}

void ForInputs(const google::protobuf::Descriptor& type, uint32_t seed, int count,
               const std::function<void(const FuzzInput&)>& use) {
  const google::protobuf::LogSilencer silent;  // of text that is not UTF-8
  const Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  RandomMessage random(seed);
  std::vector<std::string> seeds;
  for (int i = 0; i < count; ++i) {
    const std::unique_ptr<Message> message(prototype->New());
    random.Fill(message.get());
    seeds.push_back(BytesOf(*message));
    use({seeds.back()});
    const int unknown = random.AddUnknown(message.get());
    use({BytesOf(*message), unknown});
  }
  Mutator mutator(seeds,
                  {"\x0A", "\x12\x03", "\x08\x01", "\xFF\xFF\xFF\xFF\x0F", "\x80", "\xC3(",
                   std::string(1, '\0'), "\x0B", "\x0C", "\x1A\xFF\x7F"},
                  seed);
  for (int i = 0; i < count; ++i) use({mutator.Next()});
}

}  // namespace quire
