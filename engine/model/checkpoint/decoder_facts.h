// DecoderFacts: how a decoder differs from llama's equation (decoder.cc), as numbers and choices.
// Most come from the row of the family (families.h), some from config.json. Which norms and which
// fused matrices there are follows from the names of the family's tensors.
#pragma once

#include <cstdint>

namespace quire {

enum class NormKind : uint8_t { kRms, kLayer };

// The norm of queries and keys before they are rotated.
enum class QkNorm : uint8_t {
  kNone,
  kHead,       // an RMS norm of each head, with weights that the heads share
  kWidth,      // one RMS norm over all heads
  kLayerHeads  // a layer norm of each head, with weights for every head
};

enum class Activation : uint8_t { kSilu, kGelu };

// How a layer tells positions apart.
enum class Rotation : uint8_t { kNone, kGlobal, kLocal };

struct DecoderFacts {
  NormKind norm = NormKind::kRms;
  bool norm_bias = false;
  float norm_offset = 0;  // added to stored norm weights, those of queries and keys included
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  // h += attention(x) + feed_forward(x) with the same x = norm(h).
  bool parallel_blocks = false;
  float embedding_scale = 1;
  float residual_scale = 1;      // of each block's output
  float attention_scale = 0;     // of scores; 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0;  // c > 0: a score s becomes c * tanh(s / c)
  float logit_scale = 1;
  float logit_soft_cap = 0;  // after the scale
};

}  // namespace quire
