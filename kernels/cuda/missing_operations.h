// MissingOperations: a backend whose device has no kernels yet for the operations that only some
// families need. Its limits list none of them (kernels/device_limits.h), so a model that needs one
// is refused before it is loaded and no call arrives here.
#pragma once

#include "kernels/backend.h"
#include "kernels/check.h"

namespace quire {

class MissingOperations : public Backend {
 public:
  void LayerNorm(const LayerNormParams&) final { CHECK(false); }
  void AddScaled(const AddScaledParams&) final { CHECK(false); }
  void Scale(const ScaleParams&) final { CHECK(false); }
  void Gelu(const GeluParams&) final { CHECK(false); }
};

}  // namespace quire
