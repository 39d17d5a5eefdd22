// KnownText: the known tokens of a sequence, prompt and output, as one text. Valid as long as both.
#pragma once

#include <cstdint>
#include <span>

namespace quire {

struct KnownText {
  std::span<const int32_t> prompt;
  std::span<const int32_t> output;

  int32_t size() const { return static_cast<int32_t>(prompt.size() + output.size()); }
  int32_t operator[](int32_t position) const {
    const auto i = static_cast<size_t>(position);
    return i < prompt.size() ? prompt[i] : output[i - prompt.size()];
  }
};

}  // namespace quire
