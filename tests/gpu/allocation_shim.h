// Where a preloaded shim (allocation_shim.cc) counts the calls by which this process takes memory
// of the CUDA driver.
#pragma once

#include <cstdint>

// Calls so far, of the whole process. Found by dlsym: it exists only where the shim is preloaded.
using AllocationCallsFunction = uint64_t (*)();
constexpr char kAllocationCalls[] = "QuireAllocationCalls";
// Names of those that were called since the last call of this one, one space after each.
using AllocationNamesFunction = const char* (*)();
constexpr char kAllocationNames[] = "QuireAllocationNames";
