// The operations of kernels/collectives.h between ranks that reach each other's memory, one kernel
// each. All CHECK their shapes, enqueue on the device's stream, and neither allocate nor wait.
#pragma once

#include "kernels/collectives.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/group/group_view.h"

namespace quire::cuda {

// How the parts of a sum reach the ranks.
//   kOneShot: each rank sends its part to all, and each adds up all parts. One hop.
//   kTwoShot: each row has an owner, which adds up the parts of that row and sends the sum to all.
//             Two hops, and for more than two ranks fewer bytes.
// Both give the same bits.
enum class SumPath : uint8_t { kOneShot, kTwoShot };

// Whether sums are compiled for so many ranks.
constexpr bool CanSum(int32_t ranks) { return ranks == 2 || ranks == 4 || ranks == 8; }

// The layout of an inbox. Its slots bound the bytes of one call: larger tensors take several.
InboxLayout LayOutInbox(int32_t ranks, int32_t max_rows);
// Fills an inbox and the state for the first call.
void ResetInbox(std::byte* inbox, GroupState* state, const InboxLayout& layout, int32_t ranks,
                cudaStream_t stream);

// As Collectives::SumRmsNorm. x is bf16 or f16, and the widths are those of RmsNorm.
void SumRmsNorm(const RmsNormParams& p, SumPath path, const GroupView& group, const Device& device);
// As Collectives::AllReduceSum, of a matrix.
void AllReduceSum(const TensorView& x, SumPath path, const GroupView& group, const Device& device);
// As Collectives::ColumnsToRows. `out` of each rank, as this rank reaches it.
void ColumnsToRows(const TensorView& x, float* const (&out)[kMaxPeers], const GroupView& group,
                   const Device& device);
void ShareSamples(const ShareSamplesParams& p, const GroupView& group, const Device& device);
// The end of ShareSamples for results that NCCL has gathered: copies the rows of `results` to p's
// and writes the tokens to their jobs.
void SpreadSamples(const ShareSamplesParams& p, const SampleResult* results, const Device& device);

}  // namespace quire::cuda
