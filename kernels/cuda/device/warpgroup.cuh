// Instructions of sm_90a: tensor copies that count on a barrier in shared memory, registers moved
// between warpgroups, and what surrounds the matrix products of a warpgroup (four warps whose first
// is a multiple of four; warpgroup_product.cuh).
//
// A tile in shared memory is panels of 64 columns, one behind the other; a row of a panel is 128
// bytes, its 16-byte vector v at place v ^ (row % 8), and a panel begins at a multiple of 1 KiB.
// Tensor copies with the 128-byte swizzle write this layout and products read it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/device/shared_memory.cuh"

namespace quire::cuda {

inline constexpr uint32_t kPanelColumns = 64, kPanelRowBytes = 128;

// Byte offset of vector `v` (of 8 a row) within a panel.
__device__ __forceinline__ uint32_t PanelOffset(uint32_t row, uint32_t vector) {
  return row * kPanelRowBytes + ((vector ^ (row & 7)) << 4);
}

// Makes this thread's writes to shared memory visible to products and the copy engine.
__device__ __forceinline__ void FenceForProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies the box at the coordinates to shared memory and counts its bytes on `full`.
struct BoxAt {
  int32_t column, token, head, kv, block;
};
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap& map, const BoxAt& at,
                                        Barrier full) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
      "l"(&map), "r"(at.column), "r"(at.token), "r"(at.head), "r"(at.kv), "r"(at.block),
      "r"(full.address)
      : "memory");
}

// The same for a box of a matrix.
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap& map, int32_t column,
                                        int32_t row, Barrier full) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(full.address)
      : "memory");
}

// Set the number of registers of each thread of this warpgroup, up or down. All its warps must
// call.
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barriers by number, 1 to 15, for `threads` threads of the CTA.
__device__ __forceinline__ void SyncNamed(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ void ArriveNamed(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Products are asynchronous: between the fence and the wait the code must not touch their
// registers.
__device__ __forceinline__ void ProductsFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void ProductsCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void ProductsWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from reading a result before the wait that precedes this.
template <int kBlocks>
__device__ __forceinline__ void Settle(float (&x)[kBlocks][4]) {
#pragma unroll
  for (auto& block : x) {
    asm volatile("" : "+f"(block[0]), "+f"(block[1]), "+f"(block[2]), "+f"(block[3])::"memory");
  }
}
template <int kBlocks>
__device__ __forceinline__ void Settle(int32_t (&x)[kBlocks][4]) {
#pragma unroll
  for (auto& block : x) {
    asm volatile("" : "+r"(block[0]), "+r"(block[1]), "+r"(block[2]), "+r"(block[3])::"memory");
  }
}

// A tile as an operand of a product. Rows of the product are the tile's rows, or its columns in
// groups of 64 that lie `group_bytes` apart.
struct TileOperand {
  uint32_t low;

  // All threads have the same value. The shuffle tells the compiler so: operands are uniform
  // registers.
  __device__ __forceinline__ explicit TileOperand(uint32_t address, uint32_t group_bytes = 16)
      : low(__shfl_sync(0xffffffffu, address >> 4 | group_bytes >> 4 << 16, 0)) {}

  // The operand that begins `bytes` bytes further on.
  __device__ __forceinline__ uint64_t At(uint32_t bytes) const {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | (low + (bytes >> 4));
  }
};

}  // namespace quire::cuda
