// Tensors: the elements of KServe tensors as plain values, and back. Requests are at most a few
// scalars and strings, so every element is a value of its own.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace inference {
class ModelInferRequest;
}

namespace quire {

// A string is the element of a BYTES tensor.
using Element = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct NamedElements {
  std::string name;
  std::vector<Element> elements;
};

// The request's tensors in its order, from `contents` or from raw_input_contents.
// INVALID_ARGUMENT names the tensor: an unknown datatype, a shape that does not fit the contents,
// a tensor twice, or one in shared memory.
absl::StatusOr<std::vector<NamedElements>> ReadTensors(const inference::ModelInferRequest& request);

// One element of a BYTES or UINT32 tensor, as raw_output_contents has it.
std::string RawBytes(const std::string& text);
std::string RawUint32(uint32_t value);

}  // namespace quire
