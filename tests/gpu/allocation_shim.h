// The counts of a preloaded shim (allocation_shim.cc): this process's calls that allocate memory
// from the CUDA driver.
#pragma once

#include <cstdint>

// Calls of the whole process so far. Look it up by dlsym: it exists only if the shim is preloaded.
using AllocationCallsFunction = uint64_t (*)();
constexpr char kAllocationCalls[] = "QuireAllocationCalls";
// The names of the functions called since the last call of this one, each followed by a space.
using AllocationNamesFunction = const char* (*)();
constexpr char kAllocationNames[] = "QuireAllocationNames";
