// From stored tensors to device tensors: check names and shapes, then list the rectangles to read.
#include "engine/model/checkpoint/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/fault_list.h"
#include "engine/base/status_macros.h"
#include "kernels/ceil_div.h"
#include "kernels/packed_row.h"
#include "kernels/row_scale.h"

namespace quire {
namespace {

constexpr int64_t kAlignment = 256;  // of each tensor; enough for vector loads of any device

int64_t Width(const WeightSpec& spec) { return std::max<int64_t>(spec.columns, 1); }

int64_t ElementBytes(const WeightSpec& spec) {
  return RoundUp(BytesOf(spec.dtype, spec.rows * Width(spec)), kAlignment);
}

// Of a packed tensor, padded so that kernels copy 16 bytes of zeros.
int64_t ScaleStride(const WeightSpec& spec) { return RoundUp<int64_t>(spec.rows, 16); }
int64_t BlocksOf(int64_t elements) { return CeilDiv<int64_t>(elements, kScaleRun); }

// The scales of a matrix that is stored with one for each kScaleRun x kScaleRun elements, as a rank
// holds them: column of blocks by column of blocks (kernels/tensor.h). A rank's matrix stacks
// slices of stored ones, whose blocks begin at rows of their own. So a scale on the device is that
// of the most rows, a power of two, that no stored block and no part begins in between.
struct BlockScales {
  int32_t rows = 0;     // of the matrix, that share a scale
  int64_t stride = 0;   // scales of a column of blocks
  int64_t columns = 0;  // of blocks

  int64_t count() const { return columns * stride; }
  void Describe(TensorView& view) const {
    view.scale_rows = rows;
    view.scale_columns = kScaleRun;
    view.scale_stride = stride;
  }
};

BlockScales BlockScalesOf(const WeightSpec& spec) {
  int64_t rows = kScaleRun, begin = 0;
  for (const WeightPart& part : spec.parts) {
    const auto run = static_cast<int64_t>(part.order.size());
    // Rows change places within a run, which must not leave a stored block.
    if (run != 0 && kScaleRun % run != 0) rows = 1;
    rows = std::gcd(rows, std::gcd(begin, part.rows.begin));
    begin += part.rows.count + part.zero_rows;
  }
  constexpr int64_t kVector = 4;  // floats that a device copies at once
  return {.rows = static_cast<int32_t>(rows),
          .stride = RoundUp(CeilDiv(spec.rows, rows), kVector),
          .columns = BlocksOf(spec.columns)};
}

int64_t CountOfScales(const WeightSpec& spec) {
  if (IsPacked(spec.dtype)) {
    const int64_t blocks = spec.scale_columns == 0 ? 1 : spec.columns / spec.scale_columns;
    return blocks * ScaleStride(spec);
  }
  if (!IsEightBit(spec.dtype)) return 0;
  return spec.block_scales ? BlockScalesOf(spec).count() : spec.rows;
}
int64_t ScaleBytes(const WeightSpec& spec) {
  return RoundUp(CountOfScales(spec) * static_cast<int64_t>(sizeof(float)), kAlignment);
}

int64_t BytesOf(const WeightSpec& spec) {
  const int64_t zeros = spec.has_zeros ? RoundUp(CountOfScales(spec), kAlignment) : 0;
  return ElementBytes(spec) + ScaleBytes(spec) + zeros;
}

int64_t CountOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// A fault of the stored tensor: its shape, else its type. `narrow`: of elements with scales.
absl::Status CheckStored(const Checkpoint& checkpoint, const StoredTensor& stored,
                         const WeightPart& part, DType narrow) {
  const std::string where = absl::StrCat(checkpoint.path(stored), ": tensor \"", part.name, "\": ");
  if (stored.shape != part.shape) {
    return absl::InvalidArgumentError(absl::StrCat(where, "has shape ", ShapeText(stored.shape),
                                                   ", config.json makes it ",
                                                   ShapeText(part.shape)));
  }
  if (!part.scales.empty()) {
    const char* const wanted = narrow == DType::kI8 ? kStoredI8 : kStoredE4M3;
    if (stored.dtype == wanted) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(where, "stored as ", stored.dtype, "; config.json makes it ", wanted));
  }
  absl::StatusOr<DType> dtype = LoadableDType(stored.dtype);
  if (dtype.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, std::string(dtype.status().message())));
}

// A fault of the stored scales of a part.
absl::Status CheckStoredScales(const Checkpoint& checkpoint, const StoredTensor& stored,
                               const WeightPart& part) {
  const std::string where =
      absl::StrCat(checkpoint.path(stored), ": tensor \"", part.scales, "\": ");
  // One for each row, or one in all; either as a column, or as [heads, 1, 1].
  const std::vector<int64_t>& shape = stored.shape;
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const bool is_column = CountOf(shape) == rows;
  if (!is_column || (rows != 1 && rows != part.shape[0])) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "has shape ", ShapeText(shape), "; the scales of ",
                     part.name.empty() ? "heads" : part.name, " are 1 or ", part.shape[0]));
  }
  absl::StatusOr<DType> dtype = LoadableDType(stored.dtype);
  if (dtype.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, std::string(dtype.status().message())));
}

// A fault of a stored tensor of a source.
absl::Status CheckStoredForm(const Checkpoint& checkpoint, const StoredTensor& stored,
                             const WeightSource::Stored& wanted) {
  const std::string where =
      absl::StrCat(checkpoint.path(stored), ": tensor \"", wanted.name, "\": ");
  std::vector<std::string> shapes, types;
  for (const WeightSource::Form& form : wanted.forms) {
    if (std::ranges::find(shapes, ShapeText(form.shape)) == shapes.end()) {
      shapes.push_back(ShapeText(form.shape));
    }
    if (stored.shape != form.shape) continue;
    if (std::ranges::find(form.types, stored.dtype) != form.types.end()) return absl::OkStatus();
    types.insert(types.end(), form.types.begin(), form.types.end());
  }
  if (types.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, "has shape ", ShapeText(stored.shape),
                                                   ", config.json makes it ",
                                                   absl::StrJoin(shapes, " or ")));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      where, "stored as ", stored.dtype, "; config.json makes it ", absl::StrJoin(types, " or ")));
}

std::string ScalesPlace(const Checkpoint& checkpoint, const StoredTensor& stored,
                        const WeightPart& part) {
  return absl::StrCat(checkpoint.path(stored), ": tensor \"", part.scales, "\": ");
}

// The same where they are those of blocks.
absl::Status CheckStoredBlockScales(const Checkpoint& checkpoint, const StoredTensor& stored,
                                    const WeightPart& part) {
  const std::vector<int64_t> wanted = {BlocksOf(part.shape[0]), BlocksOf(part.shape[1])};
  if (stored.shape != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(ScalesPlace(checkpoint, stored, part), "has shape ", ShapeText(stored.shape),
                     "; the scales of blocks of ", part.name, " have shape ", ShapeText(wanted)));
  }
  const absl::StatusOr<DType> dtype = LoadableDType(stored.dtype);
  if (dtype.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ScalesPlace(checkpoint, stored, part), std::string(dtype.status().message())));
}

// The scales of a part that is stored 8-bit, as pieces that go to `device`.
void AddScales(const Checkpoint& checkpoint, const WeightPart& part, float* device,
               std::vector<WeightPiece>& pieces) {
  const auto& [name, stored] = *checkpoint.tensors().find(part.scales);
  const bool one = CountOf(stored.shape) == 1;
  AddPieces({.name = &name,
             .from = *LoadableDType(stored.dtype),
             .to = DType::kF32,
             .rows = {one ? 0 : part.rows.begin, part.rows.count},
             .columns = {0, 1},
             .order = one ? std::span<const int32_t>() : part.order,
             .device = reinterpret_cast<char*>(device),
             .are_scales = true,
             .repeats = one},
            pieces);
}

// Where a part goes: from a row of the spec's tensor on.
struct PartPlace {
  const TensorView& tensor;
  int64_t row;
};

// The rectangle of a part of `spec` as pieces.
void AddPart(const Checkpoint& checkpoint, const WeightPart& part, const WeightSpec& spec,
             const PartPlace& to, std::vector<WeightPiece>& pieces) {
  if (part.name.empty()) {
    return AddScales(checkpoint, part, to.tensor.ptr<float>() + to.row, pieces);
  }
  const bool is_vector = part.columns.count == 0;
  const auto& [name, stored] = *checkpoint.tensors().find(part.name);
  const int64_t row_bytes = Width(spec) * static_cast<int64_t>(SizeOf(spec.dtype));
  char* const device = to.tensor.ptr<char>() + to.row * row_bytes;
  float* const scales = to.tensor.scales == nullptr ? nullptr : to.tensor.scales + to.row;
  if (!part.scales.empty() && !spec.block_scales) AddScales(checkpoint, part, scales, pieces);
  AddPieces({.name = &name,
             .from = part.scales.empty() ? *LoadableDType(stored.dtype) : spec.dtype,
             .to = spec.dtype,
             .stored_width = is_vector ? 1 : part.shape[1],
             .rows = part.rows,
             .columns = is_vector ? ShardRange{0, 1} : part.columns,
             .width = Width(spec),
             .order = part.order,
             .device = device,
             .scales = scales},
            pieces);
}

// The stored scales of a part, row by row of blocks.
absl::StatusOr<std::vector<float>> ReadScales(const Checkpoint& checkpoint,
                                              const WeightPart& part) {
  const StoredTensor& stored = checkpoint.tensors().find(part.scales)->second;
  std::vector<char> bytes(stored.bytes);
  RETURN_IF_ERROR(checkpoint.Read(part.scales, 0, bytes));
  std::vector<float> scales;
  DispatchFloat(*LoadableDType(stored.dtype), [&](auto tag) {
    decltype(tag) scale;
    for (size_t at = 0; at < bytes.size(); at += sizeof scale) {
      std::memcpy(&scale, &bytes[at], sizeof scale);
      scales.push_back(ToFloat(scale));
    }
  });
  for (size_t i = 0; i < scales.size(); ++i) {
    if (std::isfinite(scales[i]) && scales[i] > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(ScalesPlace(checkpoint, stored, part),
                                                   "element ", i, " is ", scales[i],
                                                   "; a scale is finite and above 0"));
  }
  return scales;
}

// The stored row of a part's row r.
int64_t StoredRow(const WeightPart& part, int64_t r) {
  const auto run = static_cast<int64_t>(part.order.size());
  if (run == 0) return part.rows.begin + r;
  return part.rows.begin + r / run * run + part.order[static_cast<size_t>(r % run)];
}

// Reads the scales of all parts, which are few, whole and rearranges them on the host.
absl::Status LoadBlockScales(const Checkpoint& checkpoint, const WeightSpec& spec,
                             const TensorView& view, Backend& backend) {
  const BlockScales device = BlockScalesOf(spec);
  std::vector<float> scales(static_cast<size_t>(device.count()));
  int64_t begin = 0;
  for (const WeightPart& part : spec.parts) {
    ASSIGN_OR_RETURN(const std::vector<float> stored, ReadScales(checkpoint, part));
    CHECK_EQ(part.columns.begin % kScaleRun, 0);
    const int64_t stored_columns = BlocksOf(part.shape[1]), columns = BlocksOf(part.columns.count);
    for (int64_t r = 0; r < part.rows.count; r += device.rows) {
      const int64_t from =
          StoredRow(part, r) / kScaleRun * stored_columns + part.columns.begin / kScaleRun;
      for (int64_t c = 0; c < columns; ++c) {
        scales[static_cast<size_t>(c * device.stride + (begin + r) / device.rows)] =
            stored[static_cast<size_t>(from + c)];
      }
    }
    begin += part.rows.count + part.zero_rows;
  }
  backend.CopyToDevice(view.scales, scales.data(), scales.size() * sizeof(float));
  backend.Synchronize();
  return absl::OkStatus();
}

void FillVector(const TensorView& view, float with, Backend& backend) {
  std::vector<char> values(static_cast<size_t>(view.bytes()));
  DispatchFloat(view.dtype, [&](auto tag) {
    const auto value = FromFloat<decltype(tag)>(with);
    for (size_t at = 0; at < values.size(); at += sizeof(value)) {
      std::memcpy(&values[at], &value, sizeof(value));
    }
  });
  backend.CopyToDevice(view.data, values.data(), values.size());
  backend.Synchronize();
}

// A uniform distribution's amplitude is sqrt(3) times its standard deviation.
constexpr float kDummyAmplitude = 0.02f * 1.7320508f;

// Random integers; scales and zeros that give their values the amplitude.
void FillPacked(const TensorView& view, uint64_t seed, Backend& backend) {
  backend.FillUniform({.out = view, .seed = seed, .amplitude = 1});
  const int64_t blocks = view.scale_columns == 0 ? 1 : view.dim[1] / view.scale_columns;
  const auto count = static_cast<size_t>(blocks * view.scale_stride);
  const std::vector<float> scales(count, kDummyAmplitude / MiddleOf(view.dtype));
  backend.CopyToDevice(view.scales, scales.data(), count * sizeof(float));
  const std::vector<uint8_t> zeros(count, MiddleOf(view.dtype));
  if (view.zeros != nullptr) {
    backend.CopyToDevice(const_cast<uint8_t*>(view.zeros), zeros.data(), count);
  }
  backend.Synchronize();
}

// A vector's elements on the device, each moved by `offset`.
void AddOffset(const TensorView& view, float offset, Backend& backend) {
  CHECK(view.dtype == DType::kF32);
  std::vector<float> values(static_cast<size_t>(view.size()));
  const size_t bytes = values.size() * sizeof(float);
  backend.CopyToHost(values.data(), view.data, bytes);
  backend.Synchronize();
  for (float& value : values) value = offset + value;
  backend.CopyToDevice(view.data, values.data(), bytes);
  backend.Synchronize();
}

}  // namespace

absl::Status Weights::Check(const Checkpoint& checkpoint, std::span<const WeightSpec> specs,
                            const std::function<bool(const std::string&)>& ignorable) {
  const auto& tensors = checkpoint.tensors();
  FaultList missing, wrong, extra;
  std::set<std::string> used;
  for (const WeightSpec& spec : specs) {
    for (const WeightPart& part : spec.parts) {
      const auto check = [&](const std::string& name, auto fault) {
        // Used before: a part of a fused matrix.
        if (name.empty() || !used.insert(name).second) return;
        const auto it = tensors.find(name);
        if (it != tensors.end()) return wrong.Add(fault(checkpoint, it->second, part));
        missing.Add(absl::StrCat(checkpoint.listing_path(), ": tensor \"", name, "\": is missing",
                                 part.if_missing));
      };
      check(part.name, [&spec](const auto& file, const auto& stored, const auto& of) {
        return CheckStored(file, stored, of, spec.dtype);
      });
      check(part.scales, spec.block_scales ? CheckStoredBlockScales : CheckStoredScales);
    }
  }
  for (const WeightSpec& spec : specs) {
    if (spec.source == nullptr) continue;
    for (const WeightSource::Stored& wanted : spec.source->tensors()) {
      if (!used.insert(wanted.name).second) continue;
      const auto it = tensors.find(wanted.name);
      if (it != tensors.end()) {
        wrong.Add(CheckStoredForm(checkpoint, it->second, wanted));
      } else if (!wanted.optional) {
        missing.Add(
            absl::StrCat(checkpoint.listing_path(), ": tensor \"", wanted.name, "\": is missing"));
      }
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (used.contains(name) || ignorable(name)) continue;
    extra.Add(absl::StrCat(checkpoint.path(tensor), ": tensor \"", name,
                           "\": is not part of the model that config.json describes"));
  }
  return FaultList::Join({&missing, &wrong, &extra});
}

int64_t Weights::TotalBytes(std::span<const WeightSpec> specs) {
  int64_t total = 0;
  for (const WeightSpec& spec : specs) total += BytesOf(spec);
  return total;
}

// One allocation, cut in the order of the specs.
absl::StatusOr<Weights> Weights::Allocate(std::span<const WeightSpec> specs, Backend& backend) {
  Weights weights;
  const int64_t total = TotalBytes(specs);
  weights.storage_ = backend.Allocate(static_cast<size_t>(total));
  if (weights.storage_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has no room for ", total,
                     " bytes of weights; use more ranks or a smaller weight type"));
  }
  char* at = static_cast<char*>(weights.storage_.data());
  for (const WeightSpec& spec : specs) {
    TensorView view;
    if (spec.rows > 0 && spec.columns > 0) view = {at, spec.dtype, {spec.rows, spec.columns}};
    if (!view.empty() && CountOfScales(spec) > 0) {
      view.scales = reinterpret_cast<float*>(at + ElementBytes(spec));
      if (spec.block_scales) BlockScalesOf(spec).Describe(view);
    }
    if (!view.empty() && IsPacked(spec.dtype)) {
      view.scale_columns = spec.scale_columns;
      view.scale_stride = ScaleStride(spec);
      const char* const zeros = at + ElementBytes(spec) + ScaleBytes(spec);
      if (spec.has_zeros) view.zeros = reinterpret_cast<const uint8_t*>(zeros);
    }
    if (spec.rows > 0 && spec.columns == 0) view = {at, spec.dtype, {spec.rows}};
    weights.views_.push_back(view);
    at += BytesOf(spec);
  }
  return weights;
}

absl::StatusOr<Weights> Weights::Load(const Checkpoint& checkpoint,
                                      std::span<const WeightSpec> specs,
                                      const std::function<bool(const std::string&)>& ignorable,
                                      const WeightReading& how, Backend& backend) {
  RETURN_IF_ERROR(Check(checkpoint, specs, ignorable));
  ASSIGN_OR_RETURN(Weights weights, Allocate(specs, backend));
  std::vector<WeightPiece> pieces;
  for (size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i];
    int64_t row = 0;
    for (const WeightPart& part : spec.parts) {
      CHECK_LE(row + part.rows.count, spec.rows);
      AddPart(checkpoint, part, spec, {weights.views_[i], row}, pieces);
      row += part.rows.count + part.zero_rows;
    }
    if (spec.source != nullptr && !weights.views_[i].empty()) {
      spec.source->AddPieces(checkpoint, weights.views_[i], pieces);
    }
  }
  RETURN_IF_ERROR(ReadWeights(checkpoint, pieces, how, backend));
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& view = weights.views_[i];
    if (view.empty()) continue;
    if (specs[i].block_scales) {
      RETURN_IF_ERROR(LoadBlockScales(checkpoint, specs[i], view, backend));
    }
    if (specs[i].parts.empty() && specs[i].source == nullptr) {
      FillVector(view, specs[i].dummy, backend);
    }
    if (specs[i].offset != 0) AddOffset(view, specs[i].offset, backend);
  }
  return weights;
}

absl::StatusOr<Weights> Weights::MakeDummy(std::span<const WeightSpec> specs, Backend& backend) {
  ASSIGN_OR_RETURN(Weights weights, Allocate(specs, backend));
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& view = weights.views_[i];
    if (view.empty()) continue;
    if (IsPacked(view.dtype)) {
      FillPacked(view, i, backend);
      continue;
    }
    if (specs[i].columns > 0) {
      const bool narrow = view.scales != nullptr;
      const float most = view.dtype == DType::kI8 ? 127 : 256;  // of the range of elements
      backend.FillUniform({.out = view, .seed = i, .amplitude = narrow ? most : kDummyAmplitude});
      if (!narrow) continue;
      const std::vector<float> scales(static_cast<size_t>(CountOfScales(specs[i])),
                                      kDummyAmplitude / most);
      backend.CopyToDevice(view.scales, scales.data(), scales.size() * sizeof(float));
      backend.Synchronize();
      continue;
    }
    FillVector(view, specs[i].dummy, backend);
  }
  backend.Synchronize();
  return weights;
}

}  // namespace quire
