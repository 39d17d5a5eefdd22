// Rope: the rotary position table with the scaling of the checkpoint's config. Computed in float32
// in the order of transformers, because the checkpoint was trained with those values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/checkpoint/model_config.h"

namespace quire {

// [head_dim / 2] radians per position of each pair of dimensions.
std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int32_t head_dim);

// The factor of cosines and sines: 1, or YaRN's attention factor.
float RopeAttentionScale(const RopeConfig& rope);

// Fills table[num_positions][head_dim]: head_dim / 2 cosines, then as many sines, scaled
// (RopeStoreKvParams::cos_sin).
void FillRopeTable(const RopeConfig& rope, int32_t head_dim, int32_t num_positions,
                   std::span<float> table);

}  // namespace quire
