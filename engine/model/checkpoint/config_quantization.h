// ReadQuantization, ChooseQuantization: which matrices of a checkpoint are narrow, from its files
// and from the setting --quantization.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/model/config/config_reader.h"

namespace quire {

struct Family;
struct ModelConfig;
struct Quantization;

// Reads "quantization_config" or "compression_config" of config.json into out.quantization. Served
// are 8-bit floats (e4m3) with a scale for each row, matrix or block of 128 x 128, and 8-bit
// integers with one for each row or matrix, as compressed-tensors, AutoFP8, DeepSeek and Qwen
// ("fp8"), and ModelOpt write them, and integers of 4 and 8 bits whose products have wide inputs,
// as compressed-tensors, AWQ, GPTQ and AutoRound write them; every other method, type, block or
// group is refused by name. The exceptions become exact names of modules of the decoder: of
// `family`, whose number of layers `out` has. Without a family (null) or without layers the faults
// alone are found.
void ReadQuantization(ConfigReader& in, const Family* family, ModelConfig& out);

// The same from hf_quant_config.json, which older releases of ModelOpt write beside a config.json
// that says nothing. OK if there is no such file, or if config.json has spoken.
absl::Status ReadQuantizationFile(const std::string& path, const Family& family, ModelConfig& out);

// INVALID_ARGUMENT if a file of DIR describes narrow matrices in the way of older programs, which
// said nothing in config.json, and `model` has none.
absl::Status CheckNoOlderDescription(const std::string& dir, const ModelConfig& model);

// Applies --quantization to a model as it is stored: "auto" leaves it; "fp8" makes matrices 8-bit
// while they are read, where they are not stored so; "int4" and "int8" are for models that are
// stored so. What a model's files do not allow is INVALID_ARGUMENT: "none" where matrices are
// narrow, "fp8" where they are integers. Any other setting is INVALID_ARGUMENT too.
absl::Status ChooseQuantization(const std::string& setting, ModelConfig& model);
// The setting that gives this model from its files: "none", "fp8", "int4" or "int8".
std::string QuantizationName(const ModelConfig& model);

// The encoding for people: "none", or a type and what shares a scale, such as "fp8, a scale for
// each 128 x 128 block".
std::string EncodingText(const Quantization& quantization);

// OK if the matrices of integers divide among `ranks`, which the model itself does: a rank's inputs
// are whole groups, and its rows whole words. Otherwise INVALID_ARGUMENT that names the sizes.
absl::Status CheckIntegerShapes(const ModelConfig& model, int32_t ranks);

}  // namespace quire
