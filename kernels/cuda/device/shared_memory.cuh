// Shared memory of a block: addresses in the form of instructions, rows of which eight are in all
// banks, asynchronous copies and groups of them, Barrier, which counts arrivals and bytes
// (mbarrier), and Place, a place in a ring of them.
#pragma once

#include <cstdint>

namespace quire::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Byte offset of a vector of a row. A row in shared memory is a run of 16-byte vectors, vector v of
// row r at place v ^ (r % 8), or v ^ (r / 2 % 4) in rows of four vectors: eight rows of one vector,
// which one ldmatrix takes, are then in all 32 banks.
template <int kRowBytes>
__device__ __forceinline__ uint32_t SwizzledOffset(uint32_t row, uint32_t vector) {
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0);
  const uint32_t turn = kRowBytes == 64 ? row >> 1 & 3 : row & 7;
  return row * kRowBytes + ((vector ^ turn) << 4);
}

__device__ __forceinline__ void StoreVector(uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}

__device__ __forceinline__ uint4 LoadVector(uint32_t from) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}

// Copies 16 bytes, or writes 16 zero bytes and reads no memory.
__device__ __forceinline__ void CopyAsync(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
// Copies a float, through the first-level cache as all copies of less than 16 bytes.
__device__ __forceinline__ void CopyFloat(uint32_t to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Closes this thread's group of asynchronous copies.
__device__ __forceinline__ void CopyCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the `kPending` newest groups of this thread are unfinished; 0: until every
// copy has ended.
template <int kPending>
__device__ __forceinline__ void CopyWait() {
  if constexpr (kPending == 0) {
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
  }
}

// A barrier of 8 bytes in shared memory at `address`. Phases count from 0. A phase is over when the
// arrivals that Init asks for, and the bytes that arrivals announce, have come; the next phase
// begins at once. Only the current phase and the one before it can be waited for; a wait for a
// phase that is over returns at once.
struct Barrier {
  uint32_t address;

  // By one thread, before a barrier of all threads that use it.
  __device__ __forceinline__ void Init(uint32_t arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals)
                 : "memory");
  }
  __device__ __forceinline__ void Arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }
  // Arrives when all asynchronous copies of this thread so far have ended; Init counts it.
  __device__ __forceinline__ void ArriveCopied() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
  }
  // Compiles to no branch, so it may stand between products.
  __device__ __forceinline__ void ArriveIf(bool arrives) const {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(address),
        "r"(static_cast<int>(arrives))
        : "memory");
  }
  // Arrives, and keeps the phase open until `bytes` bytes have been copied.
  __device__ __forceinline__ void ArriveExpecting(uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void Wait(uint32_t phase) const {
    while (!IsOver(phase)) {
    }
  }
  // May suspend the thread for a while before it returns false.
  __device__ __forceinline__ bool IsOver(uint32_t phase) const {
    uint32_t over;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(over)
        : "r"(address), "r"(phase & 1)
        : "memory");
    return over != 0;
  }
  // Never suspends the thread.
  __device__ __forceinline__ bool IsOverNow(uint32_t phase) const {
    uint32_t over;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(over)
        : "r"(address), "r"(phase & 1)
        : "memory");
    return over != 0;
  }
};

// A place in a ring of stages and the phase of its barriers.
template <int kStages>
struct Place {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void Advance() {
    if (++stage < kStages) return;
    stage = 0;
    ++phase;
  }
};

// Copies `bytes` bytes of device memory to shared memory and counts them on `full`. Both addresses
// and `bytes` are multiples of 16. By one thread.
__device__ __forceinline__ void CopyBulk(void* to, const void* from, uint32_t bytes, Barrier full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(full.address)
      : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster's other blocks. By the
// thread that initialised them, before a barrier of all threads that use them.
__device__ __forceinline__ void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace quire::cuda
