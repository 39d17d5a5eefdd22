// Device code by which ranks write each other's memory and wait for what they write.
#pragma once

#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/group/group_view.h"

namespace quire::cuda {

// 16 bytes to or from memory that another rank writes or reads at the same time. Each of the four
// words arrives whole.
__device__ __forceinline__ void StoreShared(uint4* to, const uint4& value) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ uint4 LoadShared(const uint4* from) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ void StoreShared(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadShared(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// Everything this block wrote before its last barrier is visible to the rank that acquires `value`.
__device__ __forceinline__ void Release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t Acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// The number of this call. Every thread calls it after its PdlWait; EndCall ends the call.
__device__ __forceinline__ uint32_t BeginCall(const GroupView& group) {
  const uint32_t call = LoadShared(&group.state->call);
  if (group.calls_begun != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    *static_cast<volatile uint64_t*>(group.calls_begun) = uint64_t{call} + 1;
  }
  return call;
}
// Every thread calls it once, last.
__device__ __forceinline__ void EndCall(const GroupView& group, uint32_t call) {
  __syncthreads();  // all threads have read the number
  if (threadIdx.x != 0) return;
  if (atomicAdd(&group.state->blocks_done, 1u) + 1 != gridDim.x) return;
  group.state->blocks_done = 0;
  group.state->call = call + 1;
}

__device__ __forceinline__ uint32_t* Flag(const GroupView& group, int at_rank, int of_rank) {
  const int64_t line = int64_t{blockIdx.x} * kMaxPeers + of_rank;
  return reinterpret_cast<uint32_t*>(group.inbox[at_rank] + group.layout.flags + line * kFlagBytes);
}

// Waits until this block of every rank has come here in this call. All that these blocks wrote
// before is visible afterwards. At most kFlagBlocks blocks.
__device__ __forceinline__ void MeetPeers(const GroupView& group, uint32_t call) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < group.ranks && peer != group.rank) {
    const uint32_t number = call + 1;
    Release(Flag(group, peer, group.rank), number);
    // A peer that is ahead has a larger number; numbers wrap.
    while (static_cast<int32_t>(Acquire(Flag(group, group.rank, peer)) - number) < 0) {
    }
  }
  __syncthreads();
}

}  // namespace quire::cuda
