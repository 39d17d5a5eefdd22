// From stored tensors to device tensors: check names and shapes, then copy rectangle by rectangle
// through a small staging buffer, converting on the way.
#include "engine/model/weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

constexpr int64_t kAlignment = 256;         // of each tensor; what vector loads of any device want
constexpr int64_t kStagingBytes = 4 << 20;  // of stored rows at a time

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t Width(const WeightSpec& spec) { return std::max<int64_t>(spec.columns, 1); }

int64_t BytesOf(const WeightSpec& spec) {
  return AlignUp(spec.rows * Width(spec) * static_cast<int64_t>(SizeOf(spec.dtype)));
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckPart(const Checkpoint& checkpoint, const WeightPart& part) {
  const auto it = checkpoint.tensors().find(part.name);
  if (it == checkpoint.tensors().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.listing_path(), ": tensor \"", part.name, "\": is missing"));
  }
  const StoredTensor& stored = it->second;
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

absl::Status CheckNames(const Checkpoint& checkpoint, std::span<const WeightSpec> specs,
                        const std::function<bool(const std::string&)>& ignorable) {
  std::set<std::string> used;
  for (const WeightSpec& spec : specs) {
    for (const WeightPart& part : spec.parts) {
      RETURN_IF_ERROR(CheckPart(checkpoint, part));
      used.insert(part.name);
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (used.contains(name) || ignorable(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.path(tensor), ": tensor \"", name,
                     "\": is not part of the model that config.json describes"));
  }
  return absl::OkStatus();
}

// Converts `count` elements; `from` may be unaligned, as bytes of a file are.
template <typename From, typename To>
void ConvertRow(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, from + i * sizeof(From), sizeof(From));
    const To out = FromFloat<To>(ToFloat(in));
    std::memcpy(to + i * sizeof(To), &out, sizeof(To));
  }
}

// Copies parts of one checkpoint to the device; keeps its staging memory from part to part.
class PartLoader {
 public:
  PartLoader(const Checkpoint& checkpoint, Backend& backend)
      : checkpoint_(checkpoint), backend_(backend) {}

  // Writes the part's rectangle densely at `device`, as `dtype`.
  absl::Status Load(const WeightPart& part, DType dtype, char* device) {
    if (part.rows.count == 0) return absl::OkStatus();
    const StoredTensor& stored = checkpoint_.tensors().find(part.name)->second;
    from_ = *LoadableDType(stored.dtype);
    to_ = dtype;
    const bool is_vector = part.shape.size() == 1;
    const int64_t stored_width = is_vector ? 1 : part.shape[1];
    const ShardRange columns = is_vector ? ShardRange{0, 1} : part.columns;
    const auto row_bytes = static_cast<int64_t>(stored_width * SizeOf(from_));
    const int64_t step = std::clamp<int64_t>(kStagingBytes / row_bytes, 1, part.rows.count);
    for (int64_t done = 0; done < part.rows.count; done += step) {
      const int64_t rows = std::min(step, part.rows.count - done);
      read_.resize(static_cast<size_t>(rows * row_bytes));
      const int64_t offset = (part.rows.begin + done) * row_bytes;
      RETURN_IF_ERROR(checkpoint_.Read(part.name, static_cast<uint64_t>(offset), read_));
      const std::span<const char> dense = Convert(rows, stored_width, columns);
      backend_.CopyToDevice(device, dense.data(), dense.size());
      // The staging memory is written again next.
      backend_.Synchronize();
      device += dense.size();
    }
    return absl::OkStatus();
  }

 private:
  // The columns of the rows just read, dense and converted.
  std::span<const char> Convert(int64_t rows, int64_t stored_width, ShardRange columns) {
    const bool whole = columns.count == stored_width;
    if (from_ == to_ && whole) return read_;
    const auto from_size = static_cast<int64_t>(SizeOf(from_));
    const auto to_size = static_cast<int64_t>(SizeOf(to_));
    converted_.resize(static_cast<size_t>(rows * columns.count * to_size));
    DispatchFloat(from_, [&](auto from_tag) {
      DispatchFloat(to_, [&](auto to_tag) {
        for (int64_t r = 0; r < rows; ++r) {
          ConvertRow<decltype(from_tag), decltype(to_tag)>(
              read_.data() + (r * stored_width + columns.begin) * from_size,
              converted_.data() + r * columns.count * to_size, columns.count);
        }
      });
    });
    return converted_;
  }

  const Checkpoint& checkpoint_;
  Backend& backend_;
  DType from_ = DType::kF32;
  DType to_ = DType::kF32;
  std::vector<char> read_;
  std::vector<char> converted_;
};

}  // namespace

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
                                      Backend& backend) {
  RETURN_IF_ERROR(CheckNames(checkpoint, specs, ignorable));
  ASSIGN_OR_RETURN(Weights weights, Allocate(specs, backend));
  PartLoader loader(checkpoint, backend);
  for (size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i];
    char* const at = weights.views_[i].ptr<char>();
    const int64_t row_bytes = Width(spec) * static_cast<int64_t>(SizeOf(spec.dtype));
    int64_t row = 0;
    for (const WeightPart& part : spec.parts) {
      CHECK_LE(row + part.rows.count, spec.rows);
      RETURN_IF_ERROR(loader.Load(part, spec.dtype, at + row * row_bytes));
      row += part.rows.count;
    }
  }
  return weights;
}

absl::StatusOr<Weights> Weights::MakeDummy(std::span<const WeightSpec> specs, Backend& backend) {
  constexpr float kAmplitude = 0.02f * 1.7320508f;  // a uniform distribution's to its deviation
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
