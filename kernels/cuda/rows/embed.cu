// Embed: one block a token copies its row of the table. An id of another rank's row gives zeros,
// and the all-reduce then adds that rank's row.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

template <typename Table, typename T>
struct EmbedArgs {
  const int32_t* ids;
  const Table* table;
  int64_t table_stride, table_begin, table_rows;
  T* out;
  int64_t out_stride, width;
};

template <typename Table, typename T>
__global__ void __launch_bounds__(512) EmbedKernel(EmbedArgs<Table, T> a) {
  PdlTrigger();
  PdlWait();
  const int64_t row = a.ids[blockIdx.x] - a.table_begin;
  const bool here = row >= 0 && row < a.table_rows;
  const Table* from = a.table + (here ? row : 0) * a.table_stride;
  T* to = a.out + blockIdx.x * a.out_stride;
  for (int64_t i = threadIdx.x * 8; i < a.width; i += blockDim.x * 8) {
    StoreEight(to + i, here ? LoadEight(from + i) : Eight{});
  }
}

}  // namespace

void Embed(const EmbedParams& p, const Device& device) {
  CheckRowsOfEights(p.table);
  CheckRowsOfEights(p.out);
  CHECK_EQ(p.table.dim[1], p.out.dim[1]);
  if (p.out.dim[0] == 0) return;
  const Grid grid{.blocks = Blocks(p.out.dim[0], 1), .threads = ThreadsFor(p.out.dim[1] / 8, 512)};
  DispatchDevice(p.table.dtype, [&](auto table) {
    DispatchDevice(p.out.dtype, [&](auto out) {
      using Table = decltype(table);
      using T = decltype(out);
      Launch(device, grid, EmbedKernel<Table, T>,
             EmbedArgs<Table, T>{.ids = p.ids,
                                 .table = p.table.ptr<Table>(),
                                 .table_stride = p.table.row_stride,
                                 .table_begin = p.vocab_begin,
                                 .table_rows = p.table.dim[0],
                                 .out = p.out.ptr<T>(),
                                 .out_stride = p.out.row_stride,
                                 .width = p.out.dim[1]});
    });
  });
}

}  // namespace quire::cuda
