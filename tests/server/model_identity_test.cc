// The identity of a model's KV: other scales of 8-bit keys and values make another model, so that
// no KV that was made with them is taken.
#include "server/model_identity.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/model/edited_checkpoint.h"

namespace quire {
namespace {

// The identity of fp8-kv with this scale of layer 1's values.
uint64_t IdentityWith(float scale) {
  testing::EditedCheckpoint checkpoint("fp8-kv");
  const auto& entry = checkpoint.header.at("model.layers.1.self_attn.v_scale");
  std::memcpy(&checkpoint.data.at(entry.at("data_offsets")[0].get<size_t>()), &scale,
              sizeof(scale));
  const testing::TempDir dir;
  checkpoint.WriteTo(dir);
  EngineSetup setup;
  setup.config.model = dir.path();
  setup.config.kv_cache_dtype = "fp8";
  setup.model = *ModelConfig::Load(dir.path());
  const absl::StatusOr<uint64_t> identity = ModelIdentity(setup);
  EXPECT_TRUE(identity.ok()) << identity.status();
  return *identity;
}

TEST(ModelIdentityTest, CoversTheScalesOfKeysAndValues) {
  EXPECT_EQ(IdentityWith(0.013f), IdentityWith(0.013f));
  EXPECT_NE(IdentityWith(0.013f), IdentityWith(0.014f));
}

}  // namespace
}  // namespace quire
