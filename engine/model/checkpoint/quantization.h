// Quantization: which matrices of a model are 8-bit, and where their scales are stored. The
// embedding and the head are never 8-bit.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace quire {

struct Quantization {
  enum class Source {
    kNone,          // no matrix is 8-bit
    kStored,        // matrices are stored as 8-bit elements with scales
    kWhileLoading,  // matrices are stored wide and become 8-bit as they are read
  };
  Source source = Source::kNone;
  // kStored: a matrix NAME.weight has its scales in NAME + this, one for each row or one in all.
  std::string scale_suffix = ".weight_scale";
  // Modules, named as in the checkpoint, whose matrix is not 8-bit.
  std::set<std::string, std::less<>> wide;

  bool empty() const { return source == Source::kNone; }
  bool IsEightBit(std::string_view module) const { return !empty() && !wide.contains(module); }
  // Whether a stored tensor stays unread: a scale of the inputs of products, which have a scale for
  // each token instead, or of keys and values that are kept wide.
  bool Unread(std::string_view tensor) const {
    if (source != Source::kStored) return false;
    constexpr std::string_view kEndings[] = {".input_scale", ".output_scale", ".q_scale",
                                             ".k_scale",     ".v_scale",      ".kv_scale"};
    return std::ranges::any_of(kEndings, [&](auto ending) { return tensor.ends_with(ending); });
  }
};

}  // namespace quire
