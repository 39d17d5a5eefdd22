// Bulk copies to shared memory (sm_90) and the barriers that tell of their arrival.
#pragma once

#include <cstdint>

namespace quire::cuda {

// A barrier in shared memory. A phase is complete when the given number of threads have arrived and
// all bytes expected within it have come; phases are told apart by their parity, the first is 0.
struct alignas(8) Barrier {
  uint64_t state;

  __device__ __forceinline__ uint32_t Address() const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(this));
  }
  // By one thread, which then calls PublishBarriers before the block's next __syncthreads.
  __device__ __forceinline__ void Init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address()), "r"(arrivals)
                 : "memory");
  }
  __device__ __forceinline__ void Arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(Address()) : "memory");
  }
  __device__ __forceinline__ void ArriveAndExpect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Address()),
                 "r"(bytes)
                 : "memory");
  }
  // Returns at once if the phase is already complete.
  __device__ __forceinline__ void Wait(int parity) const {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(Address()),
        "r"(parity)
        : "memory");
  }
};

// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Copies `bytes` from global to shared memory and counts them on the barrier. Both addresses and
// the number are multiples of 16.
__device__ __forceinline__ void BulkCopy(void* to, const void* from, int bytes, Barrier& barrier,
                                         uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(bytes), "r"(barrier.Address()), "l"(policy)
      : "memory");
}

// Cache policies: what is read once makes room before anything else does.
__device__ __forceinline__ uint64_t EvictFirst() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t EvictNormal() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

}  // namespace quire::cuda
