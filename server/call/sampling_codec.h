// quire.v1.SamplingParams to and from the engine's values.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/values/sampling_params.h"

namespace quire {

namespace v1 {
class SamplingParams;
}

// A proto uint32 as the engine's int32; one that does not fit becomes a value outside every range.
int32_t Narrow(uint32_t value);

// What `in` leaves open comes from the model; `seed` is for a request without one.
// SamplingParams::Validate checks the ranges. INVALID_ARGUMENT by field for a word without ids.
absl::Status DecodeSampling(const v1::SamplingParams& in, const GenerationDefaults& defaults,
                            uint64_t seed, SamplingParams* out);

// All effective values: the same parameters, sent again, give the same output.
void EncodeSampling(const SamplingParams& in, v1::SamplingParams* out);

}  // namespace quire
