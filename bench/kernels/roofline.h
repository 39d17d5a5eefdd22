// What this machine can do, measured in the run that uses it: bytes read per second and fused
// multiply-adds per second over a number of threads. Benchmarks state their speed as a fraction of
// it.
#pragma once

#include <cstddef>

#include "kernels/cpu/vector/isa.h"

namespace quire {

// Bytes a second that `threads` threads read from `data`, each its own contiguous part; the best of
// several passes.
double ReadBandwidth(const void* data, size_t bytes, int threads);

// Floating-point operations a second of `threads` threads that do nothing but independent f32 fused
// multiply-adds on the registers of `isa`; 0 where there is no such loop.
double FmaPeak(cpu::Isa isa, int threads);

}  // namespace quire
