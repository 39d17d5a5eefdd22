// ProductOfTiles, ProductOfFragments and ProductOfRows: matrix products of a warpgroup, added to an
// accumulator in its registers. They are asynchronous (warpgroup.cuh).
//
// c[i] has block i of eight columns: lane (row = lane / 4, pair = lane % 4) of warp w holds columns
// 2 * pair and 2 * pair + 1 of rows 16 * w + row and, in c[i][2] and c[i][3], eight rows below.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

namespace quire::cuda {

// An accumulator's operands: the numbers of its registers, then its blocks. `kind` is "+f" or "+r".
#define QUIRE_NUMBERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define QUIRE_NUMBERS_16 QUIRE_NUMBERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define QUIRE_NUMBERS_32 \
  QUIRE_NUMBERS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUIRE_NUMBERS_64                                                                    \
  QUIRE_NUMBERS_32                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUIRE_NUMBERS_128                                                                      \
  QUIRE_NUMBERS_64                                                                             \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "    \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, " \
  "%99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "  \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define QUIRE_BLOCK(kind, i) kind(c[i][0]), kind(c[i][1]), kind(c[i][2]), kind(c[i][3])
#define QUIRE_BLOCKS_2(kind) QUIRE_BLOCK(kind, 0), QUIRE_BLOCK(kind, 1)
#define QUIRE_BLOCKS_4(kind) QUIRE_BLOCKS_2(kind), QUIRE_BLOCK(kind, 2), QUIRE_BLOCK(kind, 3)
#define QUIRE_BLOCKS_8(kind)                                                              \
  QUIRE_BLOCKS_4(kind), QUIRE_BLOCK(kind, 4), QUIRE_BLOCK(kind, 5), QUIRE_BLOCK(kind, 6), \
      QUIRE_BLOCK(kind, 7)
#define QUIRE_BLOCKS_16(kind)                                                                     \
  QUIRE_BLOCKS_8(kind), QUIRE_BLOCK(kind, 8), QUIRE_BLOCK(kind, 9), QUIRE_BLOCK(kind, 10),        \
      QUIRE_BLOCK(kind, 11), QUIRE_BLOCK(kind, 12), QUIRE_BLOCK(kind, 13), QUIRE_BLOCK(kind, 14), \
      QUIRE_BLOCK(kind, 15)
#define QUIRE_BLOCKS_32(kind)                                                                     \
  QUIRE_BLOCKS_16(kind), QUIRE_BLOCK(kind, 16), QUIRE_BLOCK(kind, 17), QUIRE_BLOCK(kind, 18),     \
      QUIRE_BLOCK(kind, 19), QUIRE_BLOCK(kind, 20), QUIRE_BLOCK(kind, 21), QUIRE_BLOCK(kind, 22), \
      QUIRE_BLOCK(kind, 23), QUIRE_BLOCK(kind, 24), QUIRE_BLOCK(kind, 25), QUIRE_BLOCK(kind, 26), \
      QUIRE_BLOCK(kind, 27), QUIRE_BLOCK(kind, 28), QUIRE_BLOCK(kind, 29), QUIRE_BLOCK(kind, 30), \
      QUIRE_BLOCK(kind, 31)

// `a`, `b` and `p` name the operands behind the accumulator: both tiles and whether it is added to.
#define QUIRE_PRODUCT_OF_TILES(shape, types, numbers, a_number, b_number, p_number, order, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_number                                     \
               ", 0;\n"                                                                         \
               "wgmma.mma_async.sync.aligned." shape ".f32." types " {" numbers "}, " a_number  \
               ", " b_number ", p, 1, 1" order ";\n}"                                           \
               : __VA_ARGS__                                                                    \
               : "l"(a), "l"(b), "r"(accumulate))
#define QUIRE_PRODUCT_OF_TYPES(n, numbers, a_number, b_number, p_number, ...)                      \
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {                                                \
    QUIRE_PRODUCT_OF_TILES("m64n" n "k32", "e4m3.e4m3", numbers, a_number, b_number, p_number, "", \
                           __VA_ARGS__);                                                           \
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                         \
    QUIRE_PRODUCT_OF_TILES("m64n" n "k16", "bf16.bf16", numbers, a_number, b_number, p_number,     \
                           ", 0, 0", __VA_ARGS__);                                                 \
  } else {                                                                                         \
    QUIRE_PRODUCT_OF_TILES("m64n" n "k16", "f16.f16", numbers, a_number, b_number, p_number,       \
                           ", 0, 0", __VA_ARGS__);                                                 \
  }

// c = a * b^T, or c += with `accumulate`: a 64 x k and b N x k, rows of tiles, k 16 elements of 16
// bits or 32 of 8. N is eight times the blocks of c.
template <typename T, int kBlocks>
__device__ __forceinline__ void ProductOfTiles(float (&c)[kBlocks][4], uint64_t a, uint64_t b,
                                               int accumulate) {
  if constexpr (kBlocks == 2) {
    QUIRE_PRODUCT_OF_TYPES("16", QUIRE_NUMBERS_8, "%8", "%9", "%10", QUIRE_BLOCKS_2("+f"));
  } else if constexpr (kBlocks == 4) {
    QUIRE_PRODUCT_OF_TYPES("32", QUIRE_NUMBERS_16, "%16", "%17", "%18", QUIRE_BLOCKS_4("+f"));
  } else if constexpr (kBlocks == 8) {
    QUIRE_PRODUCT_OF_TYPES("64", QUIRE_NUMBERS_32, "%32", "%33", "%34", QUIRE_BLOCKS_8("+f"));
  } else if constexpr (kBlocks == 16) {
    QUIRE_PRODUCT_OF_TYPES("128", QUIRE_NUMBERS_64, "%64", "%65", "%66", QUIRE_BLOCKS_16("+f"));
  } else {
    static_assert(kBlocks == 32);
    QUIRE_PRODUCT_OF_TYPES("256", QUIRE_NUMBERS_128, "%128", "%129", "%130", QUIRE_BLOCKS_32("+f"));
  }
}

#define QUIRE_PRODUCT_OF_INTEGERS(n, numbers, a_number, b_number, p_number, ...)     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_number                          \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k32.s32.s8.s8 {" numbers \
               "}, " a_number ", " b_number ", p;\n}"                                \
               : __VA_ARGS__                                                         \
               : "l"(a), "l"(b), "r"(accumulate))

// The same of 8-bit integers, whose sums are integers of 32 bits and wrap around.
template <typename T, int kBlocks>
__device__ __forceinline__ void ProductOfTiles(int32_t (&c)[kBlocks][4], uint64_t a, uint64_t b,
                                               int accumulate) {
  static_assert(std::is_same_v<T, int8_t>);
  if constexpr (kBlocks == 4) {
    QUIRE_PRODUCT_OF_INTEGERS("32", QUIRE_NUMBERS_16, "%16", "%17", "%18", QUIRE_BLOCKS_4("+r"));
  } else if constexpr (kBlocks == 8) {
    QUIRE_PRODUCT_OF_INTEGERS("64", QUIRE_NUMBERS_32, "%32", "%33", "%34", QUIRE_BLOCKS_8("+r"));
  } else if constexpr (kBlocks == 16) {
    QUIRE_PRODUCT_OF_INTEGERS("128", QUIRE_NUMBERS_64, "%64", "%65", "%66", QUIRE_BLOCKS_16("+r"));
  } else {
    static_assert(kBlocks == 32);
    QUIRE_PRODUCT_OF_INTEGERS("256", QUIRE_NUMBERS_128, "%128", "%129", "%130",
                              QUIRE_BLOCKS_32("+r"));
  }
}

#define QUIRE_PRODUCT_OF_FRAGMENTS(n, type, numbers, a0, a1, a2, a3, b_number, ...)         \
  asm volatile(                                                                             \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                            \
      "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" numbers "}, {" a0 \
      ", " a1 ", " a2 ", " a3 "}, " b_number ", p, 1, 1, 1;\n}"                             \
      : __VA_ARGS__                                                                         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define QUIRE_FRAGMENTS_OF_TYPES(n, numbers, a0, a1, a2, a3, b_number, ...)                \
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                        \
    QUIRE_PRODUCT_OF_FRAGMENTS(n, "bf16", numbers, a0, a1, a2, a3, b_number, __VA_ARGS__); \
  } else {                                                                                 \
    QUIRE_PRODUCT_OF_FRAGMENTS(n, "f16", numbers, a0, a1, a2, a3, b_number, __VA_ARGS__);  \
  }

// c += a * b: a 64 x 16 in registers as fragments of 16 rows a warp, b 16 x N, the N columns of a
// tile as they lie in memory.
template <typename T, int kBlocks>
__device__ __forceinline__ void ProductOfFragments(float (&c)[kBlocks][4], const uint32_t (&a)[4],
                                                   uint64_t b) {
  if constexpr (kBlocks == 8) {
    QUIRE_FRAGMENTS_OF_TYPES("64", QUIRE_NUMBERS_32, "%32", "%33", "%34", "%35", "%36",
                             QUIRE_BLOCKS_8("+f"));
  } else if constexpr (kBlocks == 16) {
    QUIRE_FRAGMENTS_OF_TYPES("128", QUIRE_NUMBERS_64, "%64", "%65", "%66", "%67", "%68",
                             QUIRE_BLOCKS_16("+f"));
  } else {
    static_assert(kBlocks == 32);
    QUIRE_FRAGMENTS_OF_TYPES("256", QUIRE_NUMBERS_128, "%128", "%129", "%130", "%131", "%132",
                             QUIRE_BLOCKS_32("+f"));
  }
}

#define QUIRE_PRODUCT_OF_ROWS(n, type, numbers, a0, a1, a2, a3, b_number, p_number, ...)   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_number                                \
               ", 0;\n"                                                                    \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" numbers \
               "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_number ", p, 1, 1, 0;\n}"         \
               : __VA_ARGS__                                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define QUIRE_ROWS_OF_TYPES(n, numbers, a0, a1, a2, a3, b_number, p_number, ...)                \
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                             \
    QUIRE_PRODUCT_OF_ROWS(n, "bf16", numbers, a0, a1, a2, a3, b_number, p_number, __VA_ARGS__); \
  } else {                                                                                      \
    QUIRE_PRODUCT_OF_ROWS(n, "f16", numbers, a0, a1, a2, a3, b_number, p_number, __VA_ARGS__);  \
  }

// c = a * b^T, or c += with `accumulate`: a 64 x 16 in registers as fragments of 16 rows a warp, b
// N x 16, rows of a tile.
template <typename T, int kBlocks>
__device__ __forceinline__ void ProductOfRows(float (&c)[kBlocks][4], const uint32_t (&a)[4],
                                              uint64_t b, int accumulate) {
  if constexpr (kBlocks == 2) {
    QUIRE_ROWS_OF_TYPES("16", QUIRE_NUMBERS_8, "%8", "%9", "%10", "%11", "%12", "%13",
                        QUIRE_BLOCKS_2("+f"));
  } else if constexpr (kBlocks == 4) {
    QUIRE_ROWS_OF_TYPES("32", QUIRE_NUMBERS_16, "%16", "%17", "%18", "%19", "%20", "%21",
                        QUIRE_BLOCKS_4("+f"));
  } else if constexpr (kBlocks == 8) {
    QUIRE_ROWS_OF_TYPES("64", QUIRE_NUMBERS_32, "%32", "%33", "%34", "%35", "%36", "%37",
                        QUIRE_BLOCKS_8("+f"));
  } else {
    static_assert(kBlocks == 16);
    QUIRE_ROWS_OF_TYPES("128", QUIRE_NUMBERS_64, "%64", "%65", "%66", "%67", "%68", "%69",
                        QUIRE_BLOCKS_16("+f"));
  }
}

#undef QUIRE_NUMBERS_8
#undef QUIRE_NUMBERS_16
#undef QUIRE_NUMBERS_32
#undef QUIRE_NUMBERS_64
#undef QUIRE_NUMBERS_128
#undef QUIRE_BLOCK
#undef QUIRE_BLOCKS_2
#undef QUIRE_BLOCKS_4
#undef QUIRE_BLOCKS_8
#undef QUIRE_BLOCKS_16
#undef QUIRE_BLOCKS_32
#undef QUIRE_PRODUCT_OF_TILES
#undef QUIRE_PRODUCT_OF_TYPES
#undef QUIRE_PRODUCT_OF_INTEGERS
#undef QUIRE_PRODUCT_OF_FRAGMENTS
#undef QUIRE_FRAGMENTS_OF_TYPES
#undef QUIRE_PRODUCT_OF_ROWS
#undef QUIRE_ROWS_OF_TYPES

}  // namespace quire::cuda
