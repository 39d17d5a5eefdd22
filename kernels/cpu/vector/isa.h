// The instruction sets the CPU kernels are compiled for. All of them give the same bits.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::cpu {

enum class Isa : uint8_t { kGeneric, kAvx2, kAvx512 };

constexpr const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric: return "generic";
    case Isa::kAvx2: return "AVX2";
    case Isa::kAvx512: return "AVX-512";
  }
  return "?";
}

// The instruction sets that this program has code for and this processor runs, slowest first. Never
// empty.
std::vector<Isa> SupportedIsas();
// The fastest of them.
Isa BestIsa();

}  // namespace quire::cpu
