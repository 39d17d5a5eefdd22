// sampling_math.h for the device. Files that include this are compiled without contraction of
// products and sums, so that only what the source fuses is fused: the same bits as on the CPU.
#pragma once

#define QUIRE_EXACT __device__ __forceinline__
#include "kernels/sampling_math.h"
