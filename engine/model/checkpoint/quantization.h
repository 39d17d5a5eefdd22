// Quantization: which matrices of a model are narrow, 8-bit floats or integers, and how the
// checkpoint stores them. The embedding and the head are never narrow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/row_scale.h"

namespace quire {

// The elements of matrices of 8-bit floats and of their products' inputs, and what shares a scale.
enum class Encoding {
  kFp8Rows,    // e4m3; a row of a matrix, and a token
  kFp8Blocks,  // e4m3; kScaleRun x kScaleRun of a matrix, and kScaleRun columns of a token
  kInt8Rows,   // 8-bit integers; a row of a matrix, and a token
};

// Matrices of integers whose products have wide inputs: value = scale * (element - zero), with a
// scale and a zero for each group of columns of a row (kernels/packed_row.h).
struct IntegerFormat {
  // Which tensors hold a matrix, and how their words hold its elements (packed/packed_matrix.cc).
  enum class Packing { kCompressedTensors, kPlain, kAwq, kGptq };
  Packing packing = Packing::kCompressedTensors;
  int32_t bits = 4;             // or 8
  int32_t group = 0;            // columns that share a scale; 0: all of a row
  bool has_zeros = false;       // stored; else the middle of the range
  bool zeros_less_one = false;  // as stored
  // Stored zeros are all the middle of the range. Whether they are less 1 is read from them: some
  // files have the label of the other form.
  bool symmetric = false;
  // Columns of a group need not be neighbours: a tensor has the group of each.
  bool any_order = false;

  DType dtype() const { return bits == 4 ? DType::kU4 : DType::kU8; }
};

struct Quantization {
  enum class Source {
    kNone,          // no matrix is narrow
    kStored,        // matrices are stored as narrow elements with scales
    kWhileLoading,  // matrices are stored wide and become 8-bit as they are read
  };
  Source source = Source::kNone;
  Encoding encoding = Encoding::kFp8Rows;
  // kStored: a matrix NAME.weight has its scales in NAME + this: one for each row, one in all, or
  // one for each block.
  std::string scale_suffix = ".weight_scale";
  // kStored: the elements are integers with wide inputs; else `encoding` has them.
  std::optional<IntegerFormat> integers;
  // Modules, named as in the checkpoint, whose matrix is not narrow.
  std::set<std::string, std::less<>> wide;

  bool empty() const { return source == Source::kNone; }
  // Of matrices whose inputs are as narrow.
  DType dtype() const { return encoding == Encoding::kInt8Rows ? DType::kI8 : DType::kE4M3; }
  // Columns of these that share a scale; 0: all of them.
  int32_t scale_columns() const { return encoding == Encoding::kFp8Blocks ? kScaleRun : 0; }
  // Matrices are 8-bit floats or integers whose inputs are as narrow.
  bool eight_bit() const { return !empty() && !integers.has_value(); }
  bool IsEightBit(std::string_view module) const { return eight_bit() && !wide.contains(module); }
  bool IsInteger(std::string_view module) const {
    return integers.has_value() && !wide.contains(module);
  }
  // Whether a stored tensor stays unread: a scale of keys and values that are kept wide, of
  // queries, or of the inputs of 8-bit products, which have a scale for each token instead.
  bool Unread(std::string_view tensor) const {
    constexpr std::string_view kOfAttention[] = {".q_scale", ".k_scale", ".v_scale", ".kv_scale"};
    constexpr std::string_view kOfProducts[] = {".input_scale", ".output_scale"};
    const auto ends = [&](std::string_view ending) { return tensor.ends_with(ending); };
    return std::ranges::any_of(kOfAttention, ends) ||
           (source == Source::kStored && std::ranges::any_of(kOfProducts, ends));
  }
};

}  // namespace quire
