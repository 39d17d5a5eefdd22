// SumRmsNorm, AllReduceSum: one block a row. A rank writes its row into the other ranks' inboxes
// and polls its own until theirs have arrived: the data says so itself. An empty place holds the
// pair of two negative zeros, which no rank sends, since zeros are sent as positive ones. A reader
// empties the place again. Calls alternate between two turns of places: a rank that writes a place
// again has seen every rank's part of the call between, which each sent after it had emptied the
// place.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/group/group_kernels.h"
#include "kernels/cuda/group/peer_access.cuh"
#include "kernels/cuda/rows/rms_row.cuh"
#include "kernels/cuda/rows/row_layout.h"

namespace quire::cuda {
namespace {

constexpr int64_t kInboxSlots = int64_t{32} << 20;  // bytes of all slots of an inbox
constexpr uint32_t kEmpty = 0x80008000u;            // two negative zeros of bf16 or f16
constexpr int64_t kLine = 256;
constexpr int64_t kMostWidth = 8 * kMaxNormThreads;  // of a row that a block holds at once

__device__ __forceinline__ bool IsEmpty(const uint4& four) {
  return four.x == kEmpty || four.y == kEmpty || four.z == kEmpty || four.w == kEmpty;
}
__device__ __forceinline__ uint32_t PositiveZeros(uint32_t pair) {
  return pair & ~__vcmpeq2(pair, kEmpty);
}
__device__ __forceinline__ uint4 PositiveZeros(const uint4& four) {
  return {PositiveZeros(four.x), PositiveZeros(four.y), PositiveZeros(four.z),
          PositiveZeros(four.w)};
}

template <typename T>
__device__ __forceinline__ uint4 Words(const Packed<T>& packed) {
  return *reinterpret_cast<const uint4*>(&packed);
}
template <typename T>
__device__ __forceinline__ Eight OfWords(const uint4& words) {
  return Unpack(*reinterpret_cast<const Packed<T>*>(&words));
}

// The places of one call at one offset of a row.
struct Places {
  const GroupView& group;
  int64_t turn_at, offset;

  __device__ Places(const GroupView& view, uint32_t call, int64_t offset_in)
      : group(view),
        turn_at(int64_t{call % 2} * view.ranks * view.layout.slot_bytes),
        offset(offset_in) {}
  // At `at_rank`, for the bytes that `from_rank` sends.
  __device__ uint4* At(int at_rank, int from_rank) const {
    const int64_t slot = turn_at + from_rank * group.layout.slot_bytes;
    return reinterpret_cast<uint4*>(group.inbox[at_rank] + slot + offset);
  }
  __device__ void Send(int to_rank, const uint4& words) const {
    StoreShared(At(to_rank, group.rank), words);
  }
  __device__ uint4 Take(int from_rank) const {
    uint4* const place = At(group.rank, from_rank);
    uint4 words = LoadShared(place);
    while (IsEmpty(words)) words = LoadShared(place);
    *place = {kEmpty, kEmpty, kEmpty, kEmpty};
    return words;
  }
  // Adds to `sum` the words of ranks [kBegin, kEnd) in order; this rank's are `mine`. Polls them
  // together.
  template <typename T, int kBegin, int kEnd>
  __device__ void TakeAndAdd(const uint4& mine, Eight& sum) const {
    uint4 words[kEnd - kBegin];
    bool waits = true;
    while (waits) {
      waits = false;
#pragma unroll
      for (int r = kBegin; r < kEnd; ++r) {
        words[r - kBegin] = r == group.rank ? mine : LoadShared(At(group.rank, r));
      }
#pragma unroll
      for (int r = kBegin; r < kEnd; ++r) waits = waits || IsEmpty(words[r - kBegin]);
    }
#pragma unroll
    for (int r = kBegin; r < kEnd; ++r) {
      const Eight part = OfWords<T>(words[r - kBegin]);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum.at[j] = r == 0 ? part.at[j] : sum.at[j] + part.at[j];
      if (r != group.rank) *At(group.rank, r) = {kEmpty, kEmpty, kEmpty, kEmpty};
    }
  }
  // The sum of all ranks' words in rank order. Four at a time, for the sake of registers.
  template <typename T, int kRanks>
  __device__ uint4 TakeSum(const uint4& mine) const {
    constexpr int kFirst = kRanks < 4 ? kRanks : 4;
    Eight sum;
    TakeAndAdd<T, 0, kFirst>(mine, sum);
    if constexpr (kRanks > kFirst) TakeAndAdd<T, kFirst, kRanks>(mine, sum);
    return PositiveZeros(Words(Pack<T>(sum)));
  }
};

// Sends this rank's eight elements of a row with `owner`.
template <int kRanks, SumPath kPath>
__device__ __forceinline__ void SendPart(const Places& places, int owner, const uint4& mine) {
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    const bool takes = kPath == SumPath::kOneShot || r == owner;
    if (takes && r != places.group.rank) places.Send(r, mine);
  }
}

// The sum of all ranks' eight elements after SendPart.
template <typename T, int kRanks, SumPath kPath>
__device__ __forceinline__ uint4 TakePart(const Places& places, int owner, const uint4& mine) {
  if (kPath == SumPath::kTwoShot && owner != places.group.rank) return places.Take(owner);
  const uint4 sum = places.template TakeSum<T, kRanks>(mine);
  if constexpr (kPath == SumPath::kTwoShot) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r != places.group.rank) places.Send(r, sum);
    }
  }
  return sum;
}

// Without a weight, out = the sum.
template <typename T, typename Weight, int kRanks, SumPath kPath>
__global__ void __launch_bounds__(kMaxNormThreads)
    SumRmsNormKernel(RmsArgs<T, Weight> a, int32_t rows, const __grid_constant__ GroupView group) {
  PdlTrigger();
  Eight weight[1], x[1];
  if (a.weight != nullptr) LoadWeights(a, weight);
  PdlWait();
  const uint32_t call = BeginCall(group);
  const int at = RowOffset(0);
  const auto places = [&](int row) {
    return Places(group, call, (int64_t{row} * a.width + at) * static_cast<int64_t>(sizeof(T)));
  };
  const auto send = [&](int row) {
    if (row >= rows || at >= a.width) return uint4{};
    const uint4 mine = PositiveZeros(Words(LoadPacked(a.x + row * a.x_stride + at)));
    SendPart<kRanks, kPath>(places(row), row % kRanks, mine);
    return mine;
  };
  uint4 mine = send(static_cast<int>(blockIdx.x));
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    const uint4 next = send(row + static_cast<int>(gridDim.x));
    Packed<T> sum[1] = {}, residual[1];
    LoadResidual(a, row, residual);
    if (at < a.width) {
      const uint4 words = TakePart<T, kRanks, kPath>(places(row), row % kRanks, mine);
      sum[0] = *reinterpret_cast<const Packed<T>*>(&words);
      if (a.weight == nullptr) StorePacked(a.out + row * a.out_stride + at, sum[0]);
    }
    mine = next;
    if (a.weight == nullptr) continue;
    AddResidual(a, row, sum, residual, x);
    NormRow(a, row, weight, x);
    __syncthreads();
  }
  EndCall(group, call);
}

// As many blocks as run at once, so that each may send a row ahead.
template <typename T, typename Weight, int kRanks, SumPath kPath>
void LaunchSum(const RmsArgs<T, Weight>& args, int64_t rows, const GroupView& group,
               const Device& device) {
  CHECK_LE(args.width, kMostWidth);
  const unsigned threads = ThreadsFor(args.width / 8, kMaxNormThreads);
  const int64_t at_once = int64_t{device.num_sms} * (kMaxNormThreads / threads);
  Launch(device, {.blocks = Blocks(std::min(rows, at_once), 1), .threads = threads},
         SumRmsNormKernel<T, Weight, kRanks, kPath>, args, static_cast<int32_t>(rows), group);
}

template <typename T, typename Weight, int kRanks>
void LaunchPath(const RmsArgs<T, Weight>& args, int64_t rows, SumPath path, const GroupView& group,
                const Device& device) {
  if (path == SumPath::kOneShot) {
    return LaunchSum<T, Weight, kRanks, SumPath::kOneShot>(args, rows, group, device);
  }
  LaunchSum<T, Weight, kRanks, SumPath::kTwoShot>(args, rows, group, device);
}

// Rows in as many calls as the slots ask for.
template <typename T, typename Weight>
void LaunchAll(RmsArgs<T, Weight> args, int64_t rows, SumPath path, const GroupView& group,
               const Device& device) {
  const int64_t most = group.layout.slot_bytes / (args.width * static_cast<int64_t>(sizeof(T)));
  for (int64_t left = rows; left > 0; left -= most) {
    const int64_t count = std::min(left, most);
    switch (group.ranks) {
      case 2: LaunchPath<T, Weight, 2>(args, count, path, group, device); break;
      case 4: LaunchPath<T, Weight, 4>(args, count, path, group, device); break;
      default: CHECK_EQ(group.ranks, 8); LaunchPath<T, Weight, 8>(args, count, path, group, device);
    }
    args.x += count * args.x_stride;
    if (args.residual != nullptr) args.residual += count * args.residual_stride;
    args.out += count * args.out_stride;
  }
}

__global__ void FillEmpty(uint4* slots, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    slots[i] = {kEmpty, kEmpty, kEmpty, kEmpty};
  }
}

}  // namespace

InboxLayout LayOutInbox(int32_t ranks, int32_t max_rows) {
  InboxLayout layout;
  layout.slot_bytes = kInboxSlots / (2 * ranks);
  layout.results = 2 * ranks * layout.slot_bytes;
  layout.flags = layout.results + RoundUp<int64_t>(max_rows * int64_t{sizeof(SampleResult)}, kLine);
  layout.bytes = layout.flags + int64_t{kFlagBlocks} * kMaxPeers * kFlagBytes;
  return layout;
}

void ResetInbox(std::byte* inbox, GroupState* state, const InboxLayout& layout, int32_t ranks,
                cudaStream_t stream) {
  const int64_t slots = 2 * ranks * layout.slot_bytes;
  FillEmpty<<<256, 512, 0, stream>>>(reinterpret_cast<uint4*>(inbox), slots / 16);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaMemsetAsync(inbox + slots, 0, static_cast<size_t>(layout.bytes - slots), stream));
  CUDA_CHECK(cudaMemsetAsync(state, 0, sizeof(GroupState), stream));
}

void SumRmsNorm(const RmsNormParams& p, SumPath path, const GroupView& group,
                const Device& device) {
  CheckRmsNorm(p);
  CHECK(!p.residual.empty());
  if (p.x.dim[0] == 0) return;
  if (p.x.dim[1] > kMostWidth || p.out.dtype != p.x.dtype) {
    AllReduceSum(p.x, path, group, device);
    return RmsNorm(p, device);
  }
  DispatchHalf(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (p.weight.dtype == p.x.dtype) {
      return LaunchAll(ArgsOf<T, T>(p), p.x.dim[0], path, group, device);
    }
    CHECK(p.weight.dtype == DType::kF32);
    LaunchAll(ArgsOf<T, float>(p), p.x.dim[0], path, group, device);
  });
}

void AllReduceSum(const TensorView& x, SumPath path, const GroupView& group, const Device& device) {
  CheckRowsOfEights(x);
  CHECK_EQ(x.row_stride, x.dim[1]);
  if (x.dim[0] == 0) return;
  // Rows that are too long become several.
  int64_t parts = 1;
  while (x.dim[1] / parts > kMostWidth || x.dim[1] % (8 * parts) != 0) ++parts;
  const int64_t width = x.dim[1] / parts;
  DispatchHalf(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RmsArgs<T, T> args{.x = x.ptr<T>(),
                             .x_stride = width,
                             .out = x.ptr<T>(),
                             .out_stride = width,
                             .width = static_cast<int32_t>(width)};
    LaunchAll(args, x.dim[0] * parts, path, group, device);
  });
}

}  // namespace quire::cuda
