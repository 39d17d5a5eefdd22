// WalkBands: the way of a computing warp over its block's weights, in the order in which they come
// (band_supplier.cuh).
#pragma once

#include "kernels/cuda/matmul/bands/band_ring.cuh"
#include "kernels/cuda/matmul/bands/weight_passes.cuh"

namespace quire::cuda {

// The steps of a walk: start(pass); begin(chunk, next) for each of the warp's chunks in each pass,
// where `next` is the one behind it or the first of the next pass; then add(band, unit) for each
// band of the pass; and end(pass).
template <typename Start, typename Begin, typename Add, typename End>
struct BandSteps {
  Start start;
  Begin begin;
  Add add;
  End end;
};

// For walks that need nothing when a pass begins.
struct NoStart {
  __device__ __forceinline__ void operator()(const RowPass&) const {}
};

// kMaxBands are those of a pass. By all computing warps.
template <int kMaxBands, typename Ring, typename Steps>
__device__ __forceinline__ void WalkBands(const RowShare& share, int chunks,
                                          BandReader<Ring>& reader, const Steps& steps) {
  constexpr int kWarps = Ring::kStageWarps;
  const int warp = threadIdx.x / 32;
  for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
    steps.start(pass);
#pragma unroll 1
    for (int chunk = warp; chunk - warp < chunks; chunk += kWarps) {
      if (chunk >= chunks) {
        for (int band = 0; band < pass.bands; ++band) reader.Skip();
        continue;
      }
      steps.begin(chunk, chunk + kWarps < chunks ? chunk + kWarps : warp);
#pragma unroll
      for (int band = 0; band < kMaxBands; ++band) {
        if (band >= pass.bands) break;
        typename BandReader<Ring>::Unit unit;
        reader.Take(unit);
        steps.add(band, unit);
      }
    }
    steps.end(pass);
  }
}

}  // namespace quire::cuda
