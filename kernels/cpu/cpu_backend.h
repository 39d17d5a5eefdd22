// Creates CPU backends from given options, for tests and benchmarks. The function of the same name
// in backend.h takes the options from the machine.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/vector/isa.h"

namespace quire {

struct CpuOptions {
  int ranks = 1;
  int threads_total = 0;  // divided among the ranks; <= 0: one for each core of this process
  cpu::Isa isa = cpu::BestIsa();
};

// One backend for each rank, at least 1; they share a collective group. Each is used by one thread.
// Requires an instruction set that this CPU has.
std::vector<std::unique_ptr<Backend>> CreateCpuBackends(const CpuOptions& options);

}  // namespace quire
