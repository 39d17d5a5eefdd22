// The checkpoints under tests/testdata/models whose matrices have elements of 4 or 8 bits, as their
// writers store them (make_quantized_checkpoints.py, make_packed_checkpoints.py).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace quire::testing {

struct NarrowCheckpoint {
  const char* name;           // the folder
  bool any_order = false;     // columns of groups in any order: one rank alone
  bool eight_bit_kv = false;  // the expected logits are those of 8-bit keys and values

  // Of keys and values, where those of 16 or 32 bits are `wide`.
  DType KvDtype(DType wide) const { return eight_bit_kv ? DType::kE4M3 : wide; }
};

// Activations become 8-bit too.
inline constexpr NarrowCheckpoint kEightBitCheckpoints[] = {
    {"fp8-channel"},
    {"fp8-tensor-static"},
    {"fp8-autofp8"},
    {"fp8-autofp8-qwen3"},
    {"fp8-modelopt"},
    {"fp8-modelopt-llama"},
    {"fp8-block"},
    {"fp8-block-qwen3"},
    {"fp8-block-ct"},
    {"fp8-block-ragged"},
    {"int8-channel"},
    {"int8-tensor-static"},
    {.name = "fp8-kv", .eight_bit_kv = true},
    {.name = "fp8-kv-qwen3", .eight_bit_kv = true},
};

// Integers, multiplied by activations as they are.
inline constexpr NarrowCheckpoint kPackedCheckpoints[] = {
    {"int4-ct"},       {"int4-ct-zeros"}, {.name = "int4-ct-order", .any_order = true},
    {"int8-ct"},       {"int8-plain"},    {"int4-awq"},
    {"int4-awq-wide"}, {"int4-gptq"},     {.name = "int4-gptq-order", .any_order = true},
    {"int8-gptq"},
};

inline std::vector<NarrowCheckpoint> NarrowCheckpoints() {
  std::vector<NarrowCheckpoint> all(std::begin(kEightBitCheckpoints),
                                    std::end(kEightBitCheckpoints));
  all.insert(all.end(), std::begin(kPackedCheckpoints), std::end(kPackedCheckpoints));
  return all;
}

inline void PrintTo(const NarrowCheckpoint& checkpoint, std::ostream* out) {
  *out << checkpoint.name;
}
// The name of a test over one of them.
inline std::string NameOfNarrow(const ::testing::TestParamInfo<NarrowCheckpoint>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace quire::testing
