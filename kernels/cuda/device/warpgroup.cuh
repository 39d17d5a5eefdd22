// Instructions of sm_90a: tensor copies that count on a barrier in shared memory, registers moved
// between warpgroups, and matrix products of a warpgroup (four warps whose first is a multiple of
// four).
//
// A tile in shared memory is panels of 64 columns, one behind the other; a row of a panel is 128
// bytes, its 16-byte vector v at place v ^ (row % 8), and a panel begins at a multiple of 1 KiB.
// Tensor copies with the 128-byte swizzle write this layout and products read it.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

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

// The operands of an accumulator: its registers by number, and block after block of eight columns.
#define QUIRE_NUMBERS_32                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUIRE_NUMBERS_64                                                                  \
  QUIRE_NUMBERS_32                                                                        \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48" \
  ", %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUIRE_NUMBERS_128                                                                      \
  QUIRE_NUMBERS_64                                                                             \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81" \
  ", %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99" \
  ", %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114" \
  ", %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define QUIRE_BLOCK(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define QUIRE_BLOCKS_8                                                                            \
  QUIRE_BLOCK(0), QUIRE_BLOCK(1), QUIRE_BLOCK(2), QUIRE_BLOCK(3), QUIRE_BLOCK(4), QUIRE_BLOCK(5), \
      QUIRE_BLOCK(6), QUIRE_BLOCK(7)
#define QUIRE_BLOCKS_16                                                             \
  QUIRE_BLOCKS_8, QUIRE_BLOCK(8), QUIRE_BLOCK(9), QUIRE_BLOCK(10), QUIRE_BLOCK(11), \
      QUIRE_BLOCK(12), QUIRE_BLOCK(13), QUIRE_BLOCK(14), QUIRE_BLOCK(15)
#define QUIRE_BLOCKS_32                                                                    \
  QUIRE_BLOCKS_16, QUIRE_BLOCK(16), QUIRE_BLOCK(17), QUIRE_BLOCK(18), QUIRE_BLOCK(19),     \
      QUIRE_BLOCK(20), QUIRE_BLOCK(21), QUIRE_BLOCK(22), QUIRE_BLOCK(23), QUIRE_BLOCK(24), \
      QUIRE_BLOCK(25), QUIRE_BLOCK(26), QUIRE_BLOCK(27), QUIRE_BLOCK(28), QUIRE_BLOCK(29), \
      QUIRE_BLOCK(30), QUIRE_BLOCK(31)
#define QUIRE_PRODUCT_OF_TILES_128(type)                                                 \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" QUIRE_NUMBERS_64 \
      "}, %64, %65, p, 1, 1, 0, 0;\n}"                                                   \
      : QUIRE_BLOCKS_16                                                                  \
      : "l"(a), "l"(b), "r"(accumulate))
#define QUIRE_PRODUCT_OF_TILES_64(type)                                                 \
  asm volatile(                                                                         \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                      \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" QUIRE_NUMBERS_32 \
      "}, %32, %33, p, 1, 1, 0, 0;\n}"                                                  \
      : QUIRE_BLOCKS_8                                                                  \
      : "l"(a), "l"(b), "r"(accumulate))
#define QUIRE_PRODUCT_OF_FRAGMENTS_256(type)                                              \
  asm volatile(                                                                           \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" QUIRE_NUMBERS_128 \
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n}"                                 \
      : QUIRE_BLOCKS_32                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define QUIRE_PRODUCT_OF_FRAGMENTS_128(type)                                             \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" QUIRE_NUMBERS_64 \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"                                     \
      : QUIRE_BLOCKS_16                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define QUIRE_PRODUCT_OF_FRAGMENTS_64(type)                                             \
  asm volatile(                                                                         \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                        \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" QUIRE_NUMBERS_32 \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                    \
      : QUIRE_BLOCKS_8                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// c = a * b^T, or c += with `accumulate`: a 64 x 16 and b N x 16, rows of tiles.
template <typename T>
__device__ __forceinline__ void ProductOfTiles(float (&c)[16][4], uint64_t a, uint64_t b,
                                               int accumulate) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    QUIRE_PRODUCT_OF_TILES_128("bf16");
  } else {
    QUIRE_PRODUCT_OF_TILES_128("f16");
  }
}
template <typename T>
__device__ __forceinline__ void ProductOfTiles(float (&c)[8][4], uint64_t a, uint64_t b,
                                               int accumulate) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    QUIRE_PRODUCT_OF_TILES_64("bf16");
  } else {
    QUIRE_PRODUCT_OF_TILES_64("f16");
  }
}

// c += a * b: a 64 x 16 in registers as fragments of 16 rows a warp, b 16 x N, the N columns of a
// tile as they lie in memory.
template <typename T>
__device__ __forceinline__ void ProductOfFragments(float (&c)[32][4], const uint32_t (&a)[4],
                                                   uint64_t b) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    QUIRE_PRODUCT_OF_FRAGMENTS_256("bf16");
  } else {
    QUIRE_PRODUCT_OF_FRAGMENTS_256("f16");
  }
}
template <typename T>
__device__ __forceinline__ void ProductOfFragments(float (&c)[16][4], const uint32_t (&a)[4],
                                                   uint64_t b) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    QUIRE_PRODUCT_OF_FRAGMENTS_128("bf16");
  } else {
    QUIRE_PRODUCT_OF_FRAGMENTS_128("f16");
  }
}
template <typename T>
__device__ __forceinline__ void ProductOfFragments(float (&c)[8][4], const uint32_t (&a)[4],
                                                   uint64_t b) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    QUIRE_PRODUCT_OF_FRAGMENTS_64("bf16");
  } else {
    QUIRE_PRODUCT_OF_FRAGMENTS_64("f16");
  }
}

#undef QUIRE_NUMBERS_32
#undef QUIRE_NUMBERS_64
#undef QUIRE_NUMBERS_128
#undef QUIRE_BLOCK
#undef QUIRE_BLOCKS_8
#undef QUIRE_BLOCKS_16
#undef QUIRE_BLOCKS_32
#undef QUIRE_PRODUCT_OF_TILES_64
#undef QUIRE_PRODUCT_OF_TILES_128
#undef QUIRE_PRODUCT_OF_FRAGMENTS_256
#undef QUIRE_PRODUCT_OF_FRAGMENTS_128
#undef QUIRE_PRODUCT_OF_FRAGMENTS_64

}  // namespace quire::cuda
