// CPU backends with every option explicit. Tests and benchmarks set the options that
// CreateCpuBackends of backend.h derives from the machine.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/vector/isa.h"

namespace quire {

struct CpuOptions {
  int ranks = 1;
  int threads_total = 0;  // over all ranks; <= 0: all cores this process may use
  cpu::Isa isa = cpu::BestIsa();
};

std::vector<std::unique_ptr<Backend>> CreateCpuBackends(const CpuOptions& options);

}  // namespace quire
