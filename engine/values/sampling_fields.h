// The sampling parameters that are one number each, as a table: a name, the field of SampleRow, a
// range. SamplingParams::Validate, the codec of quire.v1 and the tests walk over it, so that a new
// parameter is one row here, one field of SampleRow and one of the proto, of the same name.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "kernels/sampling.h"

namespace quire {

struct SamplingField {
  const char* name;  // in quire.v1.SamplingParams
  std::variant<float SampleRow::*, int32_t SampleRow::*> member;
  // low <= value <= high; with above_low, low < value. NaN is outside.
  double low, high;
  bool above_low = false;

  double Of(const SampleRow& row) const {
    return std::visit([&row](auto m) { return static_cast<double>(row.*m); }, member);
  }
  bool InRange(double value) const {
    return (above_low ? value > low : value >= low) && value <= high;
  }
};

// In the order of the proto. top_k is also at most the vocabulary's size.
std::span<const SamplingField> SamplingFields();

}  // namespace quire
