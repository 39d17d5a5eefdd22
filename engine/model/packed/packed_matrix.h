// PackedMatrix, ColumnOrder: matrices of integers, from the tensors in which compressed-tensors,
// AWQ and GPTQ store them to packed rows (kernels/packed_row.h). What is wrong with the tensors'
// data is INVALID_ARGUMENT with the file and the tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/checkpoint/quantization.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/checkpoint/weights.h"

namespace quire {

// A rank's part of the matrix of a module.
struct PackedPart {
  std::string module;  // as the checkpoint names it
  int64_t stored_rows = 0;
  int64_t stored_columns = 0;
  ShardRange rows;
  ShardRange columns;          // whole groups
  std::vector<int32_t> order;  // of runs of rows, as in WeightPart
  bool has_bias = false;       // else one that is stored has to be zero: some writers add it
};

// Parts of equal columns, stacked along the rows.
class PackedMatrix final : public WeightSource {
 public:
  PackedMatrix(const IntegerFormat& format, std::vector<PackedPart> parts)
      : format_(format), parts_(std::move(parts)) {}

  std::vector<Stored> tensors() const override;
  void AddPieces(const Checkpoint& checkpoint, const TensorView& tensor,
                 std::vector<WeightPiece>& pieces) const override;

 private:
  const IntegerFormat format_;
  const std::vector<PackedPart> parts_;
};

// Of a format whose columns are in any order: the stored column of each loaded one, int32, which
// all parts have in common. Parts that differ are refused by name.
class ColumnOrder final : public WeightSource {
 public:
  ColumnOrder(const IntegerFormat& format, std::vector<PackedPart> parts)
      : format_(format), parts_(std::move(parts)) {}

  std::vector<Stored> tensors() const override;
  void AddPieces(const Checkpoint& checkpoint, const TensorView& tensor,
                 std::vector<WeightPiece>& pieces) const override;

 private:
  const IntegerFormat format_;
  const std::vector<PackedPart> parts_;
};

}  // namespace quire
