// BeginStep and EndStep. Host and device memory are the same here, so messages are read in place.
// CHECKs the invariants of the plan that a GPU cannot check: a violation is a bug of the scheduler.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

template <typename T>
const T* At(const StepMessage& message, uint32_t offset) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(&message) + offset);
}

void ExpandRow(const BeginStepParams& p, const RowWork& work, int32_t& token) {
  const int32_t* tokens = p.token_table + work.row * p.token_stride;
  const int32_t* blocks = p.block_table + work.row * p.table_stride;
  for (int32_t position = work.start; position < work.start + work.count; ++position, ++token) {
    CHECK_LT(token, p.num_tokens);
    p.token_ids[token] = tokens[position];
    p.positions[token] = position;
    p.slots[token] =
        int64_t{blocks[position / p.block_size]} * p.block_size + position % p.block_size;
  }
}

}  // namespace

void BeginStep(const BeginStepParams& p) {
  const char* slot = static_cast<const char*>(p.ring.messages) +
                     static_cast<int64_t>(*p.ring.step % p.ring.slots) * p.ring.message_stride;
  const auto& message = *reinterpret_cast<const StepMessage*>(slot);
  CHECK_LE(message.bytes, static_cast<uint64_t>(p.ring.message_stride));
  CHECK_EQ(message.num_rows, p.num_seqs);
  CHECK_EQ(message.num_samples, p.num_samples);
  const Patch* patches = At<Patch>(message, message.patches_at);
  for (int32_t i = 0; i < message.num_patches; ++i) {
    std::memcpy(patches[i].to, slot + patches[i].from, patches[i].bytes);
  }
  const RowWork* work = At<RowWork>(message, message.work_at);
  int32_t token = 0, sample = 0;
  p.query_begin[0] = 0;
  for (int32_t s = 0; s < p.num_seqs; ++s) {
    ExpandRow(p, work[s], token);
    p.query_begin[s + 1] = token;
    p.context_len[s] = work[s].start + work[s].count;
    p.table_row[s] = work[s].row;
    CHECK_LE(work[s].sample, work[s].count);
    for (int32_t i = work[s].sample; i > 0; --i) p.logit_rows[sample++] = token - i;
  }
  CHECK_EQ(token, p.num_tokens);
  CHECK_EQ(sample, p.num_samples);
  std::copy_n(At<SampleJob>(message, message.jobs_at), p.num_samples, p.jobs);
}

void EndStep(const EndStepParams& p) {
  const auto slot = static_cast<int64_t>(*p.ring.step % p.ring.slots);
  std::copy_n(p.results, p.num_samples, p.ring.results + slot * p.ring.result_stride);
  ++*p.ring.step;
}

}  // namespace quire::cpu
