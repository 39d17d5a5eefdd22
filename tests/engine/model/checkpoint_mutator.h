// CheckpointMutator: does one of the things that can be wrong with a checkpoint, by seed.
#pragma once

#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/model/checkpoint/families.h"
#include "tests/engine/model/edited_checkpoint.h"

namespace quire::testing {

class CheckpointMutator {
 public:
  using json = nlohmann::json;

  explicit CheckpointMutator(const std::string& seed)
      : random_(static_cast<uint32_t>(std::hash<std::string>()(seed))) {}

  int Pick(size_t count) { return static_cast<int>(random_() % count); }

  // Does one of the things that can be wrong with a tensor; returns what the message must name.
  std::string MutateTensor(EditedCheckpoint& checkpoint) {
    const std::string name = PickTensor(checkpoint);
    json& entry = checkpoint.header[name];
    switch (Pick(5)) {
      case 0:  // missing, its bytes under a name that is harmless
        checkpoint.header["rotary_emb.inv_freq"] = entry;
        checkpoint.header.erase(name);
        return name + "\": is missing";
      case 1: {  // renamed
        const std::string other = name + (Pick(2) == 0 ? "_" : ".weight");
        checkpoint.header[other] = entry;
        checkpoint.header.erase(name);
        return name + "\": is missing";
      }
      case 2: {  // one that no family has
        const std::string other = "model.layers.0.self_attn.q_projection.weight";
        checkpoint.Add(other, "BF16", {2, 2}, 8);
        return other + "\": is not part of the model";
      }
      case 3: {  // of another shape with as many elements
        json shape = {1};
        for (const json& size : entry["shape"]) shape.push_back(size);
        entry["shape"] = shape;
        return name + "\": has shape";
      }
      default: entry["dtype"] = "I16"; return name + "\": ";
    }
  }

  // Changes or removes one key of config.json; returns the key.
  std::string MutateConfig(EditedCheckpoint& checkpoint) {
    json& object = PickObject(checkpoint.config);
    auto it = object.begin();
    std::advance(it, Pick(object.size()));
    const std::string key = it.key();
    if (Pick(5) == 0) {
      object.erase(key);
    } else {
      object[key] = PickValue(object[key]);
    }
    return key;
  }

 private:
  // A tensor that the decoder reads.
  std::string PickTensor(const EditedCheckpoint& checkpoint) {
    const Family& family = *FindFamily(checkpoint.config["architectures"][0].get<std::string>());
    std::vector<std::string> names;
    for (const auto& [name, entry] : checkpoint.header.items()) {
      bool reads = name != "__metadata__";
      for (const std::string_view prefix : family.names.skipped) {
        reads = reads && (prefix.empty() || !name.starts_with(prefix));
      }
      if (reads) names.push_back(name);
    }
    return names[static_cast<size_t>(Pick(names.size()))];
  }

  // The object that has the sizes, or the one around it.
  json& PickObject(json& config) {
    return config.contains("text_config") && Pick(4) != 0 ? config["text_config"] : config;
  }
  json PickValue(const json& old) {
    const json other[] = {nullptr,
                          0,
                          -1,
                          1,
                          2.5,
                          1e300,
                          "NaN",
                          "silu",
                          true,
                          false,
                          json::array(),
                          json::array({1, "x"}),
                          json::object(),
                          4294967296,
                          7,
                          json{{"rope_type", "linear"}}};
    if (old.is_number_integer() && Pick(3) == 0) return old.get<int64_t>() + 1 - 2 * Pick(2);
    return other[Pick(std::size(other))];
  }

  std::mt19937 random_;
};

}  // namespace quire::testing
