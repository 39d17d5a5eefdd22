// MatMul: few tokens go to SkinnyMatMul, of packed weights to DigitMatMul or GroupedMatMul; in each
// of these a token's bits do not depend on the others. More tokens go to SkinnyMatMul as well, 16
// at a time, where neither the library nor TileMatMul takes the product. For many tokens a slice of
// the rows of packed weights at a time is expanded. All other products go to cuBLASLt, TileMatMul
// or PackedMatMul as chosen for the next larger of a list of token counts.
#include "kernels/cuda/matmul/matmul.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/matmul/algorithm_search.h"
#include "kernels/cuda/matmul/algorithm_table.h"
#include "kernels/cuda/matmul/packed/digit_matmul.h"
#include "kernels/cuda/matmul/packed/expand_packed.h"
#include "kernels/cuda/matmul/packed/grouped_matmul.h"
#include "kernels/cuda/matmul/packed_matmul.h"
#include "kernels/cuda/matmul/product_choice.h"
#include "kernels/cuda/matmul/skinny_matmul.h"
#include "kernels/cuda/matmul/tile_matmul.h"

namespace quire::cuda {
namespace {

constexpr int64_t kLibraryBytes = 32 << 20;  // of the workspace
// Behind them: rows of expanded weights, which the second-level cache still holds when the library
// reads them.
constexpr int64_t kExpandedBytes = 32 << 20;

// The token counts that algorithms are chosen for; any other count takes the choice of the next
// larger.
constexpr std::array<int32_t, 28> kBuckets = {
    1,   2,   4,   8,   16,  24,  32,   48,   64,   96,   128,  192,  256,  320,
    384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096, 8192, 16384};
// Smaller weights are not timed: their product takes as long as its launch, so the heuristic's
// first algorithm is as good.
constexpr int64_t kMinTimedBytes = 1 << 20;

// The bucket that serves `tokens`; the last bucket serves any larger number.
size_t BucketOf(int64_t tokens) {
  const auto it = std::lower_bound(kBuckets.begin(), kBuckets.end(), tokens);
  return std::min(static_cast<size_t>(it - kBuckets.begin()), kBuckets.size() - 1);
}

// Everything besides the shape that a choice depends on.
std::string MachineOf(const Device& device) {
  cudaDeviceProp properties;
  int driver = 0;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device.ordinal));
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  return "cublasLt " + std::to_string(cublasLtGetVersion()) + ", driver " + std::to_string(driver) +
         ", " + std::to_string(device.num_sms) + " multiprocessors, " + properties.name;
}

void CheckParams(const MatMulParams& p) {
  const int64_t tokens = p.x.dim[0], k = p.x.dim[1], n = p.w.dim[0];
  CHECK(p.x.rank == 2 && p.w.rank == 2 && p.out.rank == 2);
  CHECK(p.w.dim[1] == k && p.out.dim[0] == tokens && p.out.dim[1] == n);
  const bool packed = IsPacked(p.w.dtype);
  CHECK(packed || p.w.dtype == p.x.dtype);
  const bool eight_bit = IsEightBit(p.x.dtype);
  CHECK(eight_bit || p.x.dtype == DType::kBF16 || p.x.dtype == DType::kF16);
  CHECK(eight_bit == (p.x.scales != nullptr));
  CHECK((eight_bit || packed) == (p.w.scales != nullptr));
  CHECK(packed || p.x.scale_columns == p.w.scale_columns);
  CHECK(eight_bit || p.out.dtype == p.x.dtype || p.out.dtype == DType::kF32);
  CHECK(p.bias.empty() || (p.bias.size() == n && p.bias.dtype == p.out.dtype));
  CHECK(k > 0);
}

// The kernel of a product. The library takes one scale for a row, not one for a block, and gives
// sums of integers without scales. TileMatMul takes both if the memory is aligned.
enum class Server { kSkinny, kSkinnySlices, kDigits, kGrouped, kChosen, kExpanded };
Server ServerOf(const MatMulParams& p) {
  if (IsPacked(p.w.dtype)) {
    if (!FitsGroupedMatMul(p) || p.x.dim[0] > kMostPackedTokens) return Server::kExpanded;
    if (p.x.dim[0] <= kMaxDigitTokens) return Server::kDigits;
    return p.x.dim[0] <= kMaxGroupedTokens ? Server::kGrouped : Server::kChosen;
  }
  if (p.x.dim[0] <= kMaxSkinnyTokens && FitsSkinnyMatMul(p)) return Server::kSkinny;
  return !LibraryTakes(p) && !FitsTileMatMul(p) ? Server::kSkinnySlices : Server::kChosen;
}

}  // namespace

struct MatMul::State {
  State(const Device& device_in, void* workspace, std::string cache_file_in)
      : device(device_in), cache_file(std::move(cache_file_in)), table(MachineOf(device)) {
    means.device = device;
    means.clusters = PrepareTileMatMul(device);
    CUDA_CHECK(cublasLtCreate(&means.lt.handle));
    means.lt.workspace = workspace;
    means.lt.workspace_bytes = static_cast<size_t>(kLibraryBytes);
    means.lt.stream = device.stream;
  }
  ~State() { cublasLtDestroy(means.lt.handle); }

  void Run(const MatMulParams& p, const ProductMeans& with);
  void RunExpanded(const MatMulParams& p);
  Choice Choose(const MatMulParams& p, ProductShape shape);

  const Device device;
  const std::string cache_file;
  ProductMeans means;
  AlgorithmTable table;
};

// Chooses for p's bucket and for every smaller bucket without a choice: the largest step usually
// comes first, and then no later step waits for a search.
Choice MatMul::State::Choose(const MatMulParams& p, ProductShape shape) {
  cudaStreamCaptureStatus capture;
  CUDA_CHECK(cudaStreamIsCapturing(device.stream, &capture));
  const int64_t weight_bytes = BytesOf(p.w.dtype, p.w.dim[0] * p.w.dim[1]);
  if (capture != cudaStreamCaptureStatusNone || weight_bytes < kMinTimedBytes) {
    MatMulParams largest = p;  // of the bucket: bits do not depend on the count that comes first
    largest.x.dim[0] = largest.out.dim[0] = shape.tokens;
    table.Put(shape, PromisingChoices(largest, means, 1, 1)[0]);
    return *table.Find(shape);
  }
  AlgorithmSearch search(p, means);
  // From the largest down, whose products take long enough to raise the clocks.
  const size_t last = BucketOf(p.x.dim[0]);
  size_t first = 0;  // fewer tokens go elsewhere
  if (IsPacked(p.w.dtype)) {
    first = BucketOf(kMaxGroupedTokens) + 1;
  } else if (FitsSkinnyMatMul(p)) {
    first = BucketOf(kMaxSkinnyTokens) + 1;
  }
  first = std::min(first, last);
  const ProductShape own = shape;
  for (size_t bucket = last + 1; bucket-- > first;) {
    shape.tokens = kBuckets[bucket];
    if (table.Find(shape) != nullptr) continue;
    table.Put(shape, search.Fastest(std::min<int64_t>(shape.tokens, p.x.dim[0])));
  }
  return *table.Find(own);
}

void MatMul::State::Run(const MatMulParams& p, const ProductMeans& with) {
  ProductShape shape = ShapeOf(p);
  shape.tokens = kBuckets[BucketOf(p.x.dim[0])];
  const Choice* const found = table.Find(shape);
  const Choice choice = found != nullptr ? *found : Choose(p, shape);
  if (Enqueue(p, choice, with)) return;
  // The algorithm was chosen for another number of tokens.
  CHECK(Enqueue(p, PromisingChoices(p, means, 1, 1)[0], with));
}

// The slices are as equal as multiples of kRows allow, so that they have at most two shapes. Their
// products start when the expansion has ended: our own kernels would read the weights before.
void MatMul::State::RunExpanded(const MatMulParams& p) {
  constexpr int64_t kRows = 64;
  const int64_t n = p.w.dim[0], k = p.w.dim[1];
  const int64_t row_bytes = k * static_cast<int64_t>(SizeOf(p.x.dtype));
  const int64_t fit = kExpandedBytes / row_bytes;  // at least one: config.json bounds the width
  const int64_t most = fit >= kRows ? fit / kRows * kRows : fit;
  CHECK_GT(most, 0);
  const int64_t step = std::min(most, RoundUp(CeilDiv(n, CeilDiv(n, most)), kRows));
  ProductMeans waiting = means;
  waiting.device.dependent_launch = false;
  char* const expanded = static_cast<char*>(means.lt.workspace) + kLibraryBytes;
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t rows = std::min(step, n - begin);
    MatMulParams part = p;
    part.w = TensorView(expanded, p.x.dtype, {rows, k});
    part.out = p.out.Columns(begin, rows);
    if (!p.bias.empty()) part.bias = p.bias.Rows(begin, rows);
    ExpandPacked(p.w.Rows(begin, rows), part.w, device);
    Run(part, waiting);
  }
}

int64_t MatMul::WorkspaceBytes() { return kLibraryBytes + kExpandedBytes; }

MatMul::MatMul(const Device& device, void* workspace, const std::string& cache_file)
    : state_(std::make_unique<State>(device, workspace, cache_file)) {
  PrepareSkinnyMatMul();
  PrepareDigitMatMul();
  PrepareGroupedMatMul();
  PreparePackedMatMul();
  std::string why;
  if (!cache_file.empty() && !state_->table.Load(cache_file, &why) && !why.empty()) {
    std::fprintf(stderr, "%s is not used (%s): matrix products are timed again\n",
                 cache_file.c_str(), why.c_str());
  }
}

MatMul::~MatMul() = default;

void MatMul::Run(const MatMulParams& p) {
  CheckParams(p);
  const int64_t tokens = p.x.dim[0];
  if (tokens == 0 || p.w.dim[0] == 0) return;
  switch (ServerOf(p)) {
    case Server::kSkinny: return SkinnyMatMul(p, state_->device);
    case Server::kDigits: return DigitMatMul(p, state_->device);
    case Server::kGrouped: return GroupedMatMul(p, state_->device);
    case Server::kChosen: return state_->Run(p, state_->means);
    case Server::kExpanded: return state_->RunExpanded(p);
    case Server::kSkinnySlices: break;
  }
  MatMulParams slice = p;
  for (int64_t done = 0; done < tokens; done += kMaxSkinnyTokens) {
    const int64_t count = std::min<int64_t>(kMaxSkinnyTokens, tokens - done);
    slice.x = p.x.Rows(done, count);
    slice.out = p.out.Rows(done, count);
    SkinnyMatMul(slice, state_->device);
  }
}

void MatMul::SaveChoices() {
  std::string why;
  if (state_->cache_file.empty() || !state_->table.changed()) return;
  if (!state_->table.Save(state_->cache_file, &why)) {
    std::fprintf(stderr, "%s cannot be written (%s): the next start times matrix products again\n",
                 state_->cache_file.c_str(), why.c_str());
  }
}

}  // namespace quire::cuda
