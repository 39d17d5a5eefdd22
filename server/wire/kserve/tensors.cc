// Little-endian elements and lengths; every length comes from the client.
#include "server/wire/kserve/tensors.h"

#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/status_macros.h"
#include "field/kserve.pb.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little);

using Tensor = inference::ModelInferRequest::InferInputTensor;
using Elements = std::vector<Element>;

template <typename Stored, typename Value>
absl::StatusOr<Elements> ReadRaw(const std::string& name, std::string_view raw) {
  if (raw.size() % sizeof(Stored) != 0) {
    return InvalidField(name, "its raw contents are " + std::to_string(raw.size()) +
                                  " bytes, no multiple of " + std::to_string(sizeof(Stored)));
  }
  Elements elements;
  for (size_t at = 0; at < raw.size(); at += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, raw.data() + at, sizeof(Stored));
    elements.emplace_back(static_cast<Value>(value));
  }
  return elements;
}

absl::StatusOr<Elements> ReadRawBytes(const std::string& name, std::string_view raw) {
  Elements elements;
  while (!raw.empty()) {
    uint32_t length = 0;
    if (raw.size() < sizeof length) return InvalidField(name, "its raw contents are cut short");
    std::memcpy(&length, raw.data(), sizeof length);
    raw.remove_prefix(sizeof length);
    if (length > raw.size()) return InvalidField(name, "its raw contents are cut short");
    elements.emplace_back(std::string(raw.substr(0, length)));
    raw.remove_prefix(length);
  }
  return elements;
}

template <typename Value, typename Repeated>
absl::StatusOr<Elements> Copied(const Repeated& contents) {
  Elements elements;
  for (const auto& value : contents) elements.emplace_back(static_cast<Value>(value));
  return elements;
}

struct Datatype {
  const char* name;
  absl::StatusOr<Elements> (*from_raw)(const std::string& name, std::string_view raw);
  absl::StatusOr<Elements> (*from_contents)(const inference::InferTensorContents& contents);
};

using C = inference::InferTensorContents;
constexpr Datatype kDatatypes[] = {
    {"BOOL", ReadRaw<uint8_t, bool>, [](const C& c) { return Copied<bool>(c.bool_contents()); }},
    {"INT8", ReadRaw<int8_t, int64_t>,
     [](const C& c) { return Copied<int64_t>(c.int_contents()); }},
    {"INT16", ReadRaw<int16_t, int64_t>,
     [](const C& c) { return Copied<int64_t>(c.int_contents()); }},
    {"INT32", ReadRaw<int32_t, int64_t>,
     [](const C& c) { return Copied<int64_t>(c.int_contents()); }},
    {"INT64", ReadRaw<int64_t, int64_t>,
     [](const C& c) { return Copied<int64_t>(c.int64_contents()); }},
    {"UINT8", ReadRaw<uint8_t, uint64_t>,
     [](const C& c) { return Copied<uint64_t>(c.uint_contents()); }},
    {"UINT16", ReadRaw<uint16_t, uint64_t>,
     [](const C& c) { return Copied<uint64_t>(c.uint_contents()); }},
    {"UINT32", ReadRaw<uint32_t, uint64_t>,
     [](const C& c) { return Copied<uint64_t>(c.uint_contents()); }},
    {"UINT64", ReadRaw<uint64_t, uint64_t>,
     [](const C& c) { return Copied<uint64_t>(c.uint64_contents()); }},
    {"FP32", ReadRaw<float, double>, [](const C& c) { return Copied<double>(c.fp32_contents()); }},
    {"FP64", ReadRaw<double, double>, [](const C& c) { return Copied<double>(c.fp64_contents()); }},
    {"BYTES", ReadRawBytes, [](const C& c) { return Copied<std::string>(c.bytes_contents()); }},
};

absl::Status CheckShape(const Tensor& tensor, size_t elements) {
  uint64_t product = 1;
  for (const int64_t size : tensor.shape()) {
    if (size < 0 || size > int64_t{1} << 20) {
      return InvalidField(tensor.name(), "its shape has a dimension of " + std::to_string(size));
    }
    product *= static_cast<uint64_t>(size);
    if (product > elements) break;  // before it overflows
  }
  if (product == elements) return absl::OkStatus();
  return InvalidField(tensor.name(),
                      "its shape does not fit its " + std::to_string(elements) + " elements");
}

absl::StatusOr<Elements> ReadTensor(const Tensor& tensor, const std::string* raw) {
  const std::string& name = tensor.name();
  if (!tensor.parameters().empty()) {
    return InvalidField(name, "its parameter '" + tensor.parameters().begin()->first +
                                  "' is not known here; send the contents in the request");
  }
  for (const Datatype& datatype : kDatatypes) {
    if (tensor.datatype() != datatype.name) continue;
    ASSIGN_OR_RETURN(Elements elements, raw != nullptr ? datatype.from_raw(name, *raw)
                                                       : datatype.from_contents(tensor.contents()));
    RETURN_IF_ERROR(CheckShape(tensor, elements.size()));
    return elements;
  }
  return InvalidField(name,
                      "its datatype is not one of BOOL, INT8 to INT64, UINT8 to UINT64, "
                      "FP32, FP64, BYTES");
}

}  // namespace

absl::StatusOr<std::vector<NamedElements>> ReadTensors(
    const inference::ModelInferRequest& request) {
  const bool is_raw = !request.raw_input_contents().empty();
  if (is_raw && request.raw_input_contents_size() != request.inputs_size()) {
    return InvalidField("raw_input_contents",
                        "has " + std::to_string(request.raw_input_contents_size()) +
                            " entries for " + std::to_string(request.inputs_size()) + " inputs");
  }
  std::vector<NamedElements> tensors;
  std::set<std::string_view> names;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const Tensor& tensor = request.inputs(i);
    if (tensor.name().empty()) {
      return InvalidField("inputs[" + std::to_string(i) + "].name", "missing");
    }
    if (!names.insert(tensor.name()).second) {
      return InvalidField(tensor.name(), "is there more than once");
    }
    if (is_raw && tensor.has_contents()) {
      return InvalidField(tensor.name(),
                          "has contents beside raw_input_contents; send one of them");
    }
    ASSIGN_OR_RETURN(Elements elements,
                     ReadTensor(tensor, is_raw ? &request.raw_input_contents(i) : nullptr));
    tensors.push_back({tensor.name(), std::move(elements)});
  }
  return tensors;
}

std::string RawBytes(const std::string& text) {
  std::string raw = RawUint32(static_cast<uint32_t>(text.size()));
  raw += text;
  return raw;
}

std::string RawUint32(uint32_t value) {
  std::string raw(sizeof value, '\0');
  std::memcpy(raw.data(), &value, sizeof value);
  return raw;
}

}  // namespace quire
