// Rope: the rotary position table with the scaling of the checkpoint's config. Computed in float32
// in the order of transformers, because the checkpoint was trained with those values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/checkpoint/model_config.h"

namespace quire {

// [rotary_dim / 2] radians per position of each pair of dimensions. `num_positions`: the longest
// context that will be served; longrope and dynamic scaling choose their frequencies by it, once
// for all positions, so that a token's KV never depends on how long its sequence becomes.
std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int32_t rotary_dim,
                                          int32_t num_positions);

// The factor of cosines and sines: 1, or the attention factor of YaRN and longrope.
float RopeAttentionScale(const RopeConfig& rope);

// Where each dimension of a stored head goes, so that the pairs that rotate are (i, i + D / 2)
// whatever pairs the checkpoint has: row i of a loaded head is row order[i] of the stored one.
// Empty where they are the same. Scores do not change when queries and keys are ordered alike.
std::vector<int32_t> RotationOrder(const RopeConfig& rope, int32_t head_dim);

// Fills table[num_positions][head_dim]: head_dim / 2 cosines, then as many sines, scaled
// (RopeStoreKvParams::cos_sin), in the order of RotationOrder. A pair that does not rotate has the
// angle 0.
void FillRopeTable(const RopeConfig& rope, int32_t head_dim, int32_t num_positions,
                   std::span<float> table);
// The table of a layer that does not rotate.
void FillIdentityTable(int32_t head_dim, int32_t num_positions, std::span<float> table);

}  // namespace quire
