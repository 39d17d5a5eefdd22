// The largest element of all that share a scale becomes the largest element of the type.
#include "bench/quality/narrowed_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/quantization.h"
#include "engine/model/checkpoint/safetensors.h"
#include "kernels/ceil_div.h"

namespace quire {
namespace {

using Json = nlohmann::json;

// The file under way.
struct Writing {
  Json header;
  std::string data;

  void Add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const void* bytes, size_t count) {
    header[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + count}}};
    data.append(static_cast<const char*>(bytes), count);
  }
};

std::vector<float> Widened(DType dtype, const std::string& bytes) {
  std::vector<float> values;
  DispatchFloat(dtype, [&](auto tag) {
    for (size_t at = 0; at < bytes.size(); at += sizeof tag) {
      std::memcpy(&tag, &bytes[at], sizeof tag);
      values.push_back(ToFloat(tag));
    }
  });
  return values;
}

void AddBlocks(const std::string& name, const std::vector<int64_t>& shape,
               const std::vector<float>& values, Writing& out) {
  const int64_t rows = shape[0], columns = shape[1];
  const int64_t across = CeilDiv<int64_t>(columns, kScaleRun);
  const int64_t down = CeilDiv<int64_t>(rows, kScaleRun);
  const auto block = [&](int64_t i) {
    return static_cast<size_t>(i / columns / kScaleRun * across + i % columns / kScaleRun);
  };
  std::vector<float> scales(static_cast<size_t>(down * across));
  for (int64_t i = 0; i < rows * columns; ++i) {
    float& largest = scales[block(i)];
    largest = std::max(largest, std::abs(values[static_cast<size_t>(i)]));
  }
  for (float& scale : scales) scale = RowScaleFor(scale).scale;
  std::vector<E4M3> elements;
  for (int64_t i = 0; i < rows * columns; ++i) {
    elements.push_back(FromFloat<E4M3>(values[static_cast<size_t>(i)] / scales[block(i)]));
  }
  out.Add(name, kStoredE4M3, shape, elements.data(), elements.size());
  out.Add(name + "_scale_inv", "F32", {down, across}, scales.data(), scales.size() * sizeof(float));
}

void AddIntegers(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<float>& values, Writing& out) {
  const auto columns = static_cast<size_t>(shape[1]);
  std::vector<float> scales(static_cast<size_t>(shape[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    scales[i / columns] = std::max(scales[i / columns], std::abs(values[i]));
  }
  for (float& scale : scales) scale = RowScaleFor(scale, kI8Max).scale;
  std::vector<I8> elements;
  for (size_t i = 0; i < values.size(); ++i) {
    elements.push_back(FromFloat<I8>(values[i] / scales[i / columns]));
  }
  out.Add(name, kStoredI8, shape, elements.data(), elements.size());
  out.Add(name + "_scale", "F32", {shape[0], 1}, scales.data(), scales.size() * sizeof(float));
}

// Integers around the middle of their range, in words of 32 bits.
struct PackedRows {
  std::vector<uint32_t> words;
  std::vector<BF16> scales;
};

constexpr int64_t kGroup = 128;

// Appends a group. The largest on either side is at most the outermost element on that side.
void PackGroup(const float* values, int bits, PackedRows& out) {
  const int middle = 1 << (bits - 1);
  float most = 0;
  for (int64_t i = 0; i < kGroup; ++i) {
    const float side = values[i] > 0 ? static_cast<float>(middle - 1) : static_cast<float>(-middle);
    most = std::max(most, values[i] / side);
  }
  const auto scale = FromFloat<BF16>(most == 0 ? 1 : most);
  out.scales.push_back(scale);
  const int64_t of_word = 32 / bits;
  for (int64_t i = 0; i < kGroup; ++i) {
    const auto nearest = static_cast<int>(std::nearbyint(values[i] / ToFloat(scale)));
    const int element = std::clamp(nearest, -middle, middle - 1) + middle;
    if (i % of_word == 0) out.words.push_back(0);
    out.words.back() |= static_cast<uint32_t>(element) << i % of_word * bits;
  }
}

void AddGroups(const std::string& name, const std::vector<int64_t>& shape,
               const std::vector<float>& values, int bits, Writing& out) {
  const int64_t rows = shape[0], columns = shape[1];
  CHECK_EQ(columns % kGroup, 0);
  PackedRows packed;
  for (int64_t i = 0; i < rows * columns; i += kGroup) PackGroup(&values[i], bits, packed);
  out.Add(name + "_packed", "I32", {rows, columns * bits / 32}, packed.words.data(),
          packed.words.size() * sizeof(uint32_t));
  out.Add(name + "_scale", "BF16", {rows, columns / kGroup}, packed.scales.data(),
          packed.scales.size() * sizeof(BF16));
  out.Add(name + "_shape", "I64", {2}, shape.data(), 2 * sizeof(int64_t));
}

void AddMatrix(const std::string& name, const std::vector<int64_t>& shape,
               const std::vector<float>& values, NarrowForm form, Writing& out) {
  switch (form) {
    case NarrowForm::kFp8Blocks: return AddBlocks(name, shape, values, out);
    case NarrowForm::kInt8Rows: return AddIntegers(name, shape, values, out);
    case NarrowForm::kInt8Groups: return AddGroups(name, shape, values, 8, out);
    case NarrowForm::kInt4Groups: return AddGroups(name, shape, values, 4, out);
  }
}

Json DescriptionOf(NarrowForm form) {
  if (form == NarrowForm::kFp8Blocks) {
    return {{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {kScaleRun, kScaleRun}}};
  }
  const bool rows = form == NarrowForm::kInt8Rows;
  Json integers = {{"num_bits", form == NarrowForm::kInt4Groups ? 4 : 8}, {"type", "int"}};
  Json group = {{"targets", {"Linear"}}};
  if (rows) {
    group["input_activations"] = integers;
  } else {
    integers["strategy"] = "group";
    integers["group_size"] = kGroup;
  }
  group["weights"] = integers;
  return {{"quant_method", "compressed-tensors"},
          {"format", rows ? "int-quantized" : "pack-quantized"},
          {"config_groups", {{"group_0", group}}}};
}

}  // namespace

absl::Status WriteNarrowed(const std::string& model, NarrowForm form, const std::string& dir) {
  ASSIGN_OR_RETURN(Json config, ReadJsonFile(model + "/config.json"));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(model));
  config["quantization_config"] = DescriptionOf(form);
  Writing out;
  for (const auto& [name, stored] : checkpoint.tensors()) {
    std::string bytes(stored.bytes, '\0');
    RETURN_IF_ERROR(checkpoint.Read(name, 0, bytes));
    ASSIGN_OR_RETURN(const DType dtype, LoadableDType(stored.dtype));
    if (name.ends_with("_proj.weight")) {
      AddMatrix(name, stored.shape, Widened(dtype, bytes), form, out);
    } else {
      out.Add(name, stored.dtype, stored.shape, bytes.data(), bytes.size());
    }
  }
  const std::string header = out.header.dump();
  const uint64_t length = header.size();
  std::ofstream(dir + "/config.json") << config.dump();
  std::ofstream file(dir + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header << out.data;
  return file.good() ? absl::OkStatus() : absl::DataLossError(dir + ": cannot be written");
}

}  // namespace quire
