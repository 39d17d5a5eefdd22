// Fuzz targets for the files of a checkpoint: each takes any bytes as one of them and aborts if the
// readers break their contract.
#pragma once

#include <string_view>

namespace quire {

// A config.json is refused by its name, or its sizes are such that a model can be planned.
void FuzzConfigFile(std::string_view bytes);
// Beside a good config.json, a generation_config.json is refused by its name, or each default is
// one that a request may have.
void FuzzGenerationConfig(std::string_view bytes);
// A whole safetensors file: each tensor of a file that opens lies in it and can be read.
void FuzzSafetensors(std::string_view bytes);
// The JSON of a safetensors header, with its right length and some data behind it.
void FuzzSafetensorsHeader(std::string_view bytes);
// The index of two good shards: no file outside the folder is opened.
void FuzzSafetensorsIndex(std::string_view bytes);

}  // namespace quire
