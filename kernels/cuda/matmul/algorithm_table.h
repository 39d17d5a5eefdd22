// AlgorithmTable: the chosen algorithm of each shape of matrix product, kept in a file: one of
// cuBLASLt's or a cut of TileMatMul.
// Load refuses a file of another machine or library, or a damaged one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "kernels/cuda/matmul/tile_cut.h"
#include "kernels/dtype.h"

namespace quire::cuda {

// A shape that an algorithm is chosen for. An alignment is the largest power of two, up to 16
// bytes, that divides the operand's address and its row stride.
struct ProductShape {
  int32_t tokens = 0;  // the largest number of tokens that the choice serves
  int32_t n = 0, k = 0;
  DType in = DType::kBF16, out = DType::kBF16;  // of w and of the results
  bool bias = false;
  bool block_scales = false;  // scales of blocks, not of rows
  uint8_t x_alignment = 16, w_alignment = 16, out_alignment = 16;

  bool operator==(const ProductShape&) const = default;
};

struct ProductShapeHash {
  size_t operator()(const ProductShape& shape) const;
};

// A cublasLtMatmulAlgo_t as plain words, for the file.
using AlgorithmWords = std::array<uint64_t, 8>;

struct Choice {
  TileCut cut{};  // empty: the library's algorithm
  AlgorithmWords algorithm{};
  float microseconds = 0;  // 0: the heuristic's choice, not timed and not kept in the file
};

// Not thread-safe.
class AlgorithmTable {
 public:
  // `machine` is one line that names everything besides the shape that a choice depends on.
  explicit AlgorithmTable(std::string machine) : machine_(std::move(machine)) {}

  // Adds the choices of a file. Returns false, with the reason in `why`, if it refuses the file. A
  // file that does not exist is no fault: false, and `why` is empty.
  bool Load(const std::string& path, std::string* why);
  // Replaces the file, whole or not at all. Returns false, with the reason in `why`, if it could
  // not.
  bool Save(const std::string& path, std::string* why);

  // The choice of a shape, or null. Valid until the next Put or Load.
  const Choice* Find(const ProductShape& shape) const;
  void Put(const ProductShape& shape, const Choice& choice);
  // True if Save would write a choice that Load has not read.
  bool changed() const { return changed_; }

 private:
  std::string Text() const;

  const std::string machine_;
  std::unordered_map<ProductShape, Choice, ProductShapeHash> choices_;
  bool changed_ = false;
};

}  // namespace quire::cuda
