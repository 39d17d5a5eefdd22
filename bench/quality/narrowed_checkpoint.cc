// The largest element of what shares a scale becomes the largest element of the type.
#include "bench/quality/narrowed_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status_macros.h"
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

Json DescriptionOf(Encoding encoding) {
  if (encoding == Encoding::kFp8Blocks) {
    return {{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {kScaleRun, kScaleRun}}};
  }
  const Json integers = {{"num_bits", 8}, {"type", "int"}};
  const Json group = {
      {"targets", {"Linear"}}, {"weights", integers}, {"input_activations", integers}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"config_groups", {{"group_0", group}}}};
}

}  // namespace

absl::Status WriteNarrowed(const std::string& model, Encoding encoding, const std::string& dir) {
  const bool integers = encoding == Encoding::kInt8Rows;
  CHECK(integers || encoding == Encoding::kFp8Blocks);
  ASSIGN_OR_RETURN(Json config, ReadJsonFile(model + "/config.json"));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(model));
  config["quantization_config"] = DescriptionOf(encoding);
  Writing out;
  for (const auto& [name, stored] : checkpoint.tensors()) {
    std::string bytes(stored.bytes, '\0');
    RETURN_IF_ERROR(checkpoint.Read(name, 0, bytes));
    ASSIGN_OR_RETURN(const DType dtype, LoadableDType(stored.dtype));
    if (name.ends_with("_proj.weight")) {
      (integers ? AddIntegers : AddBlocks)(name, stored.shape, Widened(dtype, bytes), out);
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
