// Quantization: which matrices of a model are 8-bit, and where their scales are stored. The
// embedding and the head are never 8-bit.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/row_scale.h"

namespace quire {

// The elements of narrow matrices and of their products' inputs, and what shares a scale.
enum class Encoding {
  kFp8Rows,    // e4m3; a row of a matrix, and a token
  kFp8Blocks,  // e4m3; kScaleRun x kScaleRun of a matrix, and kScaleRun columns of a token
  kInt8Rows,   // 8-bit integers; a row of a matrix, and a token
};

struct Quantization {
  enum class Source {
    kNone,          // no matrix is 8-bit
    kStored,        // matrices are stored as 8-bit elements with scales
    kWhileLoading,  // matrices are stored wide and become 8-bit as they are read
  };
  Source source = Source::kNone;
  Encoding encoding = Encoding::kFp8Rows;
  // kStored: a matrix NAME.weight has its scales in NAME + this: one for each row, one in all, or
  // one for each block.
  std::string scale_suffix = ".weight_scale";
  // Modules, named as in the checkpoint, whose matrix is not 8-bit.
  std::set<std::string, std::less<>> wide;

  bool empty() const { return source == Source::kNone; }
  DType dtype() const { return encoding == Encoding::kInt8Rows ? DType::kI8 : DType::kE4M3; }
  // Columns that share a scale; 0: all of them.
  int32_t scale_columns() const { return encoding == Encoding::kFp8Blocks ? kScaleRun : 0; }
  bool IsEightBit(std::string_view module) const { return !empty() && !wide.contains(module); }
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
