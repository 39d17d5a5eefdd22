// The rates of this machine, measured in the run that uses them: bytes read per second and fused
// multiply-adds per second by a number of threads. Benchmarks state their speed as a fraction of
// them.
#pragma once

#include <cstddef>

#include "kernels/cpu/vector/isa.h"

namespace quire {

// Bytes per second that `threads` threads read from `data`, each thread its own contiguous part.
// The best of several passes.
double ReadBandwidth(const void* data, size_t bytes, int threads);

// Floating-point operations per second of `threads` threads that run independent f32 fused
// multiply-adds on the registers of `isa`; 0 if this program has no such loop.
double FmaPeak(cpu::Isa isa, int threads);

}  // namespace quire
