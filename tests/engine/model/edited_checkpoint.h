// EditedCheckpoint: a copy of a checkpoint under tests/testdata/models, of one file, whose config
// and header of tensors a test edits.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "tests/engine/model/model_runner.h"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {

class EditedCheckpoint {
 public:
  explicit EditedCheckpoint(const std::string& name) {
    config = *ReadJsonFile(ModelDir(name) + "/config.json");
    std::ifstream file(ModelDir(name) + "/model.safetensors", std::ios::binary);
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), 8);
    std::string text(length, ' ');
    file.read(text.data(), static_cast<std::streamsize>(length));
    header = json::parse(text);
    data.assign(std::istreambuf_iterator<char>(file), {});
  }

  // Appends a tensor of zeros.
  void Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
           int64_t bytes) {
    const size_t begin = data.size();
    data.resize(begin + static_cast<size_t>(bytes));
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  void WriteTo(const TempDir& dir) const {
    dir.Write("config.json", config.dump());
    dir.Write("model.safetensors", SafetensorsBytes(header.dump(), data));
  }

  using json = nlohmann::json;
  json config, header;
  std::string data;
};

}  // namespace quire::testing
