// From stored tensors to device tensors: check names and shapes, then list the rectangles to read.
#include "engine/model/checkpoint/weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/fault_list.h"
#include "engine/base/status_macros.h"
#include "kernels/ceil_div.h"

namespace quire {
namespace {

constexpr int64_t kAlignment = 256;  // of each tensor; enough for vector loads of any device

int64_t Width(const WeightSpec& spec) { return std::max<int64_t>(spec.columns, 1); }

int64_t BytesOf(const WeightSpec& spec) {
  return RoundUp(spec.rows * Width(spec) * static_cast<int64_t>(SizeOf(spec.dtype)), kAlignment);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// A fault of the stored tensor: its shape, else its type.
absl::Status CheckStored(const Checkpoint& checkpoint, const StoredTensor& stored,
                         const WeightPart& part) {
  const std::string where = absl::StrCat(checkpoint.path(stored), ": tensor \"", part.name, "\": ");
  if (stored.shape != part.shape) {
    return absl::InvalidArgumentError(absl::StrCat(where, "has shape ", ShapeText(stored.shape),
                                                   ", config.json makes it ",
                                                   ShapeText(part.shape)));
  }
  absl::StatusOr<DType> dtype = LoadableDType(stored.dtype);
  if (dtype.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, std::string(dtype.status().message())));
}

// The rectangle of a part of `spec` as pieces that go to `device`.
void AddPart(const Checkpoint& checkpoint, const WeightPart& part, const WeightSpec& spec,
             char* device, std::vector<WeightPiece>& pieces) {
  const bool is_vector = part.columns.count == 0;
  const auto& [name, stored] = *checkpoint.tensors().find(part.name);
  AddPieces({.name = &name,
             .from = *LoadableDType(stored.dtype),
             .to = spec.dtype,
             .stored_width = is_vector ? 1 : part.shape[1],
             .rows = part.rows,
             .columns = is_vector ? ShardRange{0, 1} : part.columns,
             .width = Width(spec),
             .order = part.order,
             .device = device},
            pieces);
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
      if (!used.insert(part.name).second) continue;  // a part of a fused matrix
      const auto it = tensors.find(part.name);
      if (it != tensors.end()) {
        wrong.Add(CheckStored(checkpoint, it->second, part));
      } else {
        missing.Add(
            absl::StrCat(checkpoint.listing_path(), ": tensor \"", part.name, "\": is missing"));
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
    char* const at = weights.views_[i].ptr<char>();
    const int64_t row_bytes = Width(spec) * static_cast<int64_t>(SizeOf(spec.dtype));
    int64_t row = 0;
    for (const WeightPart& part : spec.parts) {
      CHECK_LE(row + part.rows.count, spec.rows);
      AddPart(checkpoint, part, spec, at + row * row_bytes, pieces);
      row += part.rows.count + part.zero_rows;
    }
  }
  RETURN_IF_ERROR(ReadWeights(checkpoint, pieces, how, backend));
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool moved = specs[i].offset != 0 && !weights.views_[i].empty();
    if (moved) AddOffset(weights.views_[i], specs[i].offset, backend);
  }
  return weights;
}

absl::StatusOr<Weights> Weights::MakeDummy(std::span<const WeightSpec> specs, Backend& backend) {
  // A uniform distribution's amplitude is sqrt(3) times its standard deviation.
  constexpr float kAmplitude = 0.02f * 1.7320508f;
  ASSIGN_OR_RETURN(Weights weights, Allocate(specs, backend));
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& view = weights.views_[i];
    if (view.empty()) continue;
    if (specs[i].columns > 0) {
      backend.FillUniform({.out = view, .seed = i, .amplitude = kAmplitude});
      continue;
    }
    std::vector<char> values(static_cast<size_t>(view.bytes()));
    DispatchFloat(view.dtype, [&](auto tag) {
      const auto value = FromFloat<decltype(tag)>(specs[i].dummy);
      for (size_t at = 0; at < values.size(); at += sizeof(value)) {
        std::memcpy(&values[at], &value, sizeof(value));
      }
    });
    backend.CopyToDevice(view.data, values.data(), values.size());
    backend.Synchronize();
  }
  backend.Synchronize();
  return weights;
}

}  // namespace quire
