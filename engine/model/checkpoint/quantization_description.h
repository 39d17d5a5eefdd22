// QuantizationDescription: what a checkpoint says of its narrow matrices, as the programs that
// write such checkpoints say it.
#pragma once

#include <optional>
#include <string>

#include "engine/model/checkpoint/quantization.h"
#include "engine/model/config/config_reader.h"
#include "engine/model/config/module_list.h"

namespace quire {

inline constexpr int kWideBits = 16;  // of elements that are not narrow: as many, or more

struct QuantizationDescription {
  ModuleList wide;  // modules that are not narrow
  std::optional<IntegerFormat> integers;
  Encoding encoding = Encoding::kFp8Rows;  // of all others
  std::string scale_suffix = ".weight_scale";
};

// Reads the object "quantization_config" or "compression_config" of config.json. Its faults are
// those of `in`: every method, type, block or group that is not served, and every key that is not
// known, by name. After a fault the result means nothing.
QuantizationDescription ReadDescription(ConfigReader& in);
// The same of the object "quantization" of ModelOpt's hf_quant_config.json.
QuantizationDescription ReadModelOptFile(ConfigReader& in);

}  // namespace quire
