// AlgorithmTable: which cuBLASLt algorithm each shape of matrix product takes, kept in a file. A
// file that was written on another machine, for other libraries, or is damaged is left unread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "kernels/dtype.h"

namespace quire::cuda {

// What an algorithm is chosen for. Alignments, in bytes, are the largest power of two up to 16 that
// divides the operand's address and its row stride.
struct ProductShape {
  int32_t tokens = 0;  // the largest number of tokens it serves
  int32_t n = 0, k = 0;
  DType in = DType::kBF16, out = DType::kBF16;
  bool bias = false;
  uint8_t x_alignment = 16, w_alignment = 16, out_alignment = 16;

  bool operator==(const ProductShape&) const = default;
};

struct ProductShapeHash {
  size_t operator()(const ProductShape& shape) const;
};

// A cublasLtMatmulAlgo_t, as it is kept: plain words.
using AlgorithmWords = std::array<uint64_t, 8>;

struct Choice {
  AlgorithmWords algorithm{};
  float microseconds = 0;  // 0: taken from the heuristic, not by timing, and not kept in the file
};

// One thread at a time.
class AlgorithmTable {
 public:
  // `machine` names everything that a choice depends on beside the shape, in one line.
  explicit AlgorithmTable(std::string machine) : machine_(std::move(machine)) {}

  // Adds the choices of a file. False, with the reason in `why`, if nothing was taken from it; a
  // file that does not exist is no fault and leaves `why` empty.
  bool Load(const std::string& path, std::string* why);
  // Replaces the file, whole or not at all. False, with the reason in `why`, if it could not.
  bool Save(const std::string& path, std::string* why);

  // Null if nothing is chosen; valid until the next Put or Load.
  const Choice* Find(const ProductShape& shape) const;
  void Put(const ProductShape& shape, const Choice& choice);
  // Whether Save would write something that Load has not read.
  bool changed() const { return changed_; }

 private:
  std::string Text() const;

  const std::string machine_;
  std::unordered_map<ProductShape, Choice, ProductShapeHash> choices_;
  bool changed_ = false;
};

}  // namespace quire::cuda
