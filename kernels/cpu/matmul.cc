// MatMul: cuts the output into blocks of rows of w and tokens, sized for the caches; the threads
// take blocks in order. The borders of blocks do not change the bits of their elements.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/packed_row.h"

namespace quire::cpu {
namespace {

// A block's rows of w stay in the second-level cache while its tokens pass, eight at a time.
constexpr int64_t kBlockBytes = 256 << 10;
// Fewer products are not worth another thread: these take one core about 4 microseconds.
constexpr int64_t kBlockProducts = 64 << 10;

struct Cut {
  int64_t rows, tokens;  // of one block
};

Cut CutFor(const MatMulParams& p, int threads) {
  const int64_t tokens = p.x.dim[0], k = std::max<int64_t>(1, p.x.dim[1]), n = p.w.dim[0];
  constexpr int64_t kRows = 24;  // a multiple of every register tile
  Cut cut{n, tokens};
  if (tokens * n * k > kBlockProducts) {
    const bool widened = IsEightBit(p.w.dtype) || IsPacked(p.w.dtype);
    const auto size = static_cast<int64_t>(SizeOf(widened ? DType::kF32 : p.w.dtype));
    const int64_t by_cache = kBlockBytes / (k * size);
    const int64_t by_work = kBlockProducts / (k * std::min<int64_t>(tokens, 64));
    // Four blocks a thread, so that a thread that loses its core does not delay the rest.
    const int64_t by_threads = std::max(CeilDiv<int64_t>(n, threads * 4), by_work);
    cut.rows = RoundUp(std::max<int64_t>(1, std::min(by_cache, by_threads)), kRows);
    cut.tokens = 64;
  }
  return cut;
}

void AddBias(const MatMulParams& p, const MatMulBlock& b, int64_t first_row,
             const VectorKernels& kernels) {
  constexpr int64_t kPart = 256;
  float bias[kPart];
  for (int64_t r = 0; r < b.rows; r += kPart) {
    const int64_t n = std::min(kPart, b.rows - r);
    const char* from =
        p.bias.ptr<char>() + (first_row + r) * static_cast<int64_t>(SizeOf(p.bias.dtype));
    kernels.widen(Elements{from, p.bias.dtype}, bias, n);
    for (int64_t t = 0; t < b.tokens; ++t) kernels.add(b.out + t * b.out_stride + r, bias, n);
  }
}

template <typename T>
std::array<float, 256> ValuesOf() {
  std::array<float, 256> values;
  for (int i = 0; i < 256; ++i) values[i] = ToFloat(std::bit_cast<T>(static_cast<uint8_t>(i)));
  return values;
}

// Rows of 8-bit elements as floats, on one thread until its next call.
const float* Widened(const TensorView& m, int64_t first, int64_t rows, std::vector<float>& room) {
  static const std::array<float, 256> floats = ValuesOf<E4M3>(), integers = ValuesOf<I8>();
  const std::array<float, 256>& values = m.dtype == DType::kI8 ? integers : floats;
  const int64_t k = m.dim[1];
  room.resize(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r) {
    const auto* from = m.row<uint8_t>(first + r);
    for (int64_t i = 0; i < k; ++i) room[r * k + i] = values[from[i]];
  }
  return room.data();
}

// Where a block of a product begins: a token of x, and a row of w.
struct Origin {
  int64_t token, row;
};

// Columns whose sum of products of integers is exact in floats: 1024 * 127 * 128 < 2^24.
constexpr int64_t kExactColumns = 1024;

// A block of 8-bit factors. Of floats the sum over each run of columns is multiplied by the scales
// of both, and these products are added in the order of the columns. Of integers the sum over all
// columns is exact, and multiplied once.
void MatMulEightBit(const MatMulParams& p, MatMulBlock block, const Origin& origin,
                    const VectorKernels& kernels) {
  thread_local std::vector<float> x, w, part;
  thread_local std::vector<int32_t> exact;
  const bool integers = p.w.dtype == DType::kI8;
  const int64_t k = block.k, out_stride = block.out_stride;
  const int64_t whole = std::max<int64_t>(k, 1);
  const int64_t run = p.w.scale_columns > 0 ? p.w.scale_columns : whole;
  const int64_t columns = integers ? kExactColumns : run;
  const float* const of_x = Widened(p.x, origin.token, block.tokens, x);
  const float* const of_w = Widened(p.w, origin.row, block.rows, w);
  float* const out = block.out;
  part.resize(static_cast<size_t>(block.tokens * block.rows));
  exact.assign(integers ? part.size() : 0, 0);
  block.x_stride = block.w_stride = k;
  block.out = part.data();
  block.out_stride = block.rows;
  for (int64_t c = 0; c == 0 || c < k; c += columns) {
    block.x = of_x + c;
    block.w = {of_w + c, DType::kF32};
    block.k = std::min(columns, k - c);
    kernels.matmul(block);
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] += static_cast<int32_t>(part[i]);
      part[i] = static_cast<float>(exact[i]);
    }
    if (integers && c + columns < k) continue;
    for (int64_t t = 0; t < block.tokens; ++t) {
      const float x_scale = p.x.scales[p.x.ScaleIndex(origin.token + t, c)];
      for (int64_t r = 0; r < block.rows; ++r) {
        const float w_scale = p.w.scales[p.w.ScaleIndex(origin.row + r, c)];
        const float scaled = part[t * block.rows + r] * (x_scale * w_scale);
        float& sum = out[t * out_stride + r];
        sum = c == 0 || integers ? scaled : sum + scaled;
      }
    }
  }
}

// The values of packed rows become floats first.
void MatMulPacked(const MatMulParams& p, MatMulBlock block, int64_t row,
                  const VectorKernels& kernels) {
  thread_local std::vector<float> w;
  w.resize(static_cast<size_t>(block.rows * block.k));
  for (int64_t r = 0; r < block.rows; ++r) WidenPackedRow(p.w, row + r, &w[r * block.k]);
  block.w = {w.data(), DType::kF32};
  block.w_stride = block.k;
  kernels.matmul(block);
}

}  // namespace

void MatMul(const MatMulParams& p, const Cores& cores) {
  const int64_t tokens = p.x.dim[0], k = p.x.dim[1], n = p.w.dim[0];
  const bool eight_bit = IsEightBit(p.w.dtype);
  CHECK(p.x.dtype == (eight_bit ? p.w.dtype : DType::kF32) && p.out.dtype == DType::kF32);
  const bool packed = IsPacked(p.w.dtype);
  CHECK(eight_bit == (p.x.scales != nullptr));
  CHECK((eight_bit || packed) == (p.w.scales != nullptr));
  CHECK(packed || p.x.scale_columns == p.w.scale_columns);
  CHECK(!packed || (k % kPackedColumns == 0 && p.w.scale_rows == 1));
  CHECK(p.w.dim[1] == k && p.out.dim[0] == tokens && p.out.dim[1] == n);
  CHECK(p.bias.empty() || p.bias.size() == n);
  if (tokens == 0 || n == 0) return;
  const Cut cut = CutFor(p, cores.pool.threads());
  const int64_t token_cuts = CeilDiv(tokens, cut.tokens);
  const int64_t blocks = CeilDiv(n, cut.rows) * token_cuts;
  cores.pool.ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / token_cuts * cut.rows, token = i % token_cuts * cut.tokens;
      const MatMulBlock block{.x = p.x.row<float>(token),
                              .x_stride = p.x.row_stride,
                              .tokens = std::min(cut.tokens, tokens - token),
                              .w = packed ? Elements{} : RowOf(p.w, row),
                              .w_stride = p.w.row_stride,
                              .rows = std::min(cut.rows, n - row),
                              .k = k,
                              .out = p.out.row<float>(token) + row,
                              .out_stride = p.out.row_stride};
      if (eight_bit) {
        MatMulEightBit(p, block, {token, row}, cores.kernels);
      } else if (packed) {
        MatMulPacked(p, block, row, cores.kernels);
      } else {
        cores.kernels.matmul(block);
      }
      if (!p.bias.empty()) AddBias(p, block, row, cores.kernels);
    }
  });
}

}  // namespace quire::cpu
