// Multilinear hashing: the upper bits of k0 + k1 * parent + k2 * t0 + k3 * t1 + ... modulo 2^64 are
// pairwise independent when the factors are random.
#include "engine/schedule/containers/child_index.h"

#include <algorithm>
#include <bit>
#include <random>

namespace quire {
namespace {

int32_t BucketBits(int32_t num_nodes) {
  return std::max(1, static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(num_nodes))));
}

}  // namespace

ChildIndex::ChildIndex(int32_t num_nodes, int32_t block_size, uint64_t seed)
    : block_size_(block_size), factors_(block_size + 2, 0), buckets_(0, 0) {
  CHECK_GE(block_size, 1);
  std::mt19937_64 random(seed);
  if (seed != 0) std::generate(factors_.begin(), factors_.end(), std::ref(random));
  Grow(num_nodes);
}

void ChildIndex::Grow(int32_t num_nodes) {
  const IdLists before = std::move(buckets_);
  keys_.resize(size_t(num_nodes) * (block_size_ + 1));
  bucket_bits_ = BucketBits(num_nodes);
  buckets_ = IdLists(1 << bucket_bits_, num_nodes);
  for (int32_t node = 0; node < before.num_ids(); ++node) {
    if (before.Contains(node)) {
      buckets_.PushBack(BucketOf(ParentOf(node), TokensOf(node)), node);
    }
  }
}

int32_t ChildIndex::BucketOf(int32_t parent, std::span<const int32_t> tokens) const {
  uint64_t sum = factors_[0] + factors_[1] * static_cast<uint32_t>(parent);
  for (int32_t i = 0; i < block_size_; ++i) {
    sum += factors_[i + 2] * static_cast<uint32_t>(tokens[i]);
  }
  return static_cast<int32_t>(sum >> (64 - bucket_bits_));
}

int32_t ChildIndex::Find(int32_t parent, std::span<const int32_t> tokens) const {
  int32_t node = buckets_.Front(BucketOf(parent, tokens));
  while (node != IdLists::kNone &&
         (ParentOf(node) != parent ||
          !std::equal(tokens.begin(), tokens.end(), TokensOf(node).begin()))) {
    node = buckets_.Next(node);
  }
  return node;
}

void ChildIndex::Insert(int32_t node, int32_t parent, std::span<const int32_t> tokens) {
  CHECK_EQ(static_cast<int32_t>(tokens.size()), block_size_);
  int32_t* key = &keys_[size_t(node) * (block_size_ + 1)];
  key[0] = parent;
  std::copy(tokens.begin(), tokens.end(), key + 1);
  buckets_.PushBack(BucketOf(parent, tokens), node);
}

}  // namespace quire
