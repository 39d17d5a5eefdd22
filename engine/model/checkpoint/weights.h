// Weights: the tensors of one rank on its device, each assembled from slices of checkpoint tensors
// and converted to the wanted type, in one allocation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/checkpoint/weight_reader.h"
#include "kernels/backend.h"

namespace quire {

// A rectangle of a stored tensor: rows of dimension 0 and columns of dimension 1. A vector has rows
// only, which are its elements, whatever shape it is stored in. An empty rectangle checks that the
// tensor exists and loads nothing.
struct WeightPart {
  std::string name;            // in the checkpoint
  std::vector<int64_t> shape;  // required in the checkpoint
  ShardRange rows;
  ShardRange columns;
  // Not empty: in each run of as many rows, loaded row i is stored row order[i]. Divides the rows.
  std::vector<int32_t> order;
  int64_t zero_rows = 0;  // behind the part
  // Of a part that is stored 8-bit: the tensor with its scales, one for each stored row or one in
  // all, or as WeightSpec::block_scales says. Without a name, these scales are the part.
  std::string scales;
  const char* if_missing = "";  // goes on behind the message that it is
};

// WeightSource: stored tensors that become one device tensor in another way than rectangles do.
class WeightSource {
 public:
  // A stored tensor that it reads: in one of these forms, unless it is optional and not there.
  struct Form {
    std::vector<int64_t> shape;
    std::vector<std::string> types;  // as the file names them
  };
  struct Stored {
    std::string name;
    std::vector<Form> forms;
    bool optional = false;
  };

  virtual ~WeightSource() = default;
  virtual std::vector<Stored> tensors() const = 0;
  // Pieces that fill `tensor`, from a checkpoint that has the tensors.
  virtual void AddPieces(const Checkpoint& checkpoint, const TensorView& tensor,
                         std::vector<WeightPiece>& pieces) const = 0;
};

// One device tensor: its parts stacked along dimension 0, then rows of zeros up to `rows`. Behind
// the columns of a part come zeros up to `columns`. An 8-bit tensor has scales: those of its parts,
// or, of parts that are stored wide, those that make each row's largest element the largest 8-bit
// one. A packed tensor (kernels/packed_row.h) comes from a source.
struct WeightSpec {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;  // 0: a vector of `rows`
  std::vector<WeightPart> parts;
  // Of an 8-bit tensor: a stored scale is that of kScaleRun x kScaleRun elements.
  bool block_scales = false;
  float dummy = 0;   // value of a vector's elements in MakeDummy; in Load, of one without parts
  float offset = 0;  // added to a vector's elements in Load; then dtype is float32
  std::shared_ptr<const WeightSource> source;  // instead of parts; may be null in MakeDummy
  // Of a packed tensor, as in TensorView.
  int32_t scale_columns = 0;
  bool has_zeros = false;
};

class Weights {
 public:
  // From the headers alone: OK if every part is stored in the shape it names, in a type that can be
  // loaded, and every stored tensor is a part of some spec or `ignorable(name)`. INVALID_ARGUMENT
  // names file and tensor of every fault, one a line: those missing, those of a wrong shape or
  // type, those beyond the specs; of each kind the first FaultList::kMostShown and the number of
  // others.
  static absl::Status Check(const Checkpoint& checkpoint, std::span<const WeightSpec> specs,
                            const std::function<bool(const std::string&)>& ignorable);
  // Loads specs in order; errors are those of Check, and those of reading.
  static absl::StatusOr<Weights> Load(const Checkpoint& checkpoint,
                                      std::span<const WeightSpec> specs,
                                      const std::function<bool(const std::string&)>& ignorable,
                                      const WeightReading& how, Backend& backend);
  // Random weights of the same shapes, for benchmarks: matrices uniform with a standard deviation
  // of 0.02, vectors constant. RESOURCE_EXHAUSTED as Load.
  static absl::StatusOr<Weights> MakeDummy(std::span<const WeightSpec> specs, Backend& backend);
  // Device bytes that Load and MakeDummy take.
  static int64_t TotalBytes(std::span<const WeightSpec> specs);

  // The tensor of specs[index]; an empty view when it has no rows.
  const TensorView& operator[](size_t index) const { return views_[index]; }
  size_t size() const { return views_.size(); }

 private:
  static absl::StatusOr<Weights> Allocate(std::span<const WeightSpec> specs, Backend& backend);

  Buffer storage_;
  std::vector<TensorView> views_;
};

}  // namespace quire
