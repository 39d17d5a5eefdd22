// Communication between the blocks of a cluster: barriers of all blocks, addresses in each other's
// shared memory, and mailboxes, which count the bytes sent to them, so that only the receiver
// waits.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device/shared_memory.cuh"

namespace quire::cuda {

// Counts the bytes that copies and other blocks write to this block's shared memory. Turns count
// from 0; a turn ends when all parties have announced their bytes and all announced bytes have
// arrived. Lies in shared memory.
struct Mailbox {
  uint64_t state;

  __device__ Barrier barrier() const { return {SharedAddress(&state)}; }
  // By one thread, before a barrier of all threads that use it.
  __device__ void Open(uint32_t parties = 1) { barrier().Init(parties); }
  // Announces the bytes of a turn where the receiver is the only party: by one thread, once a turn.
  __device__ void Expect(uint32_t bytes) { barrier().ArriveExpecting(bytes); }
  // Copies device memory here as a part of the turn (CopyBulk).
  __device__ void Copy(void* to, const void* from, uint32_t bytes) const {
    CopyBulk(to, from, bytes, barrier());
  }
  // Waits for the end of a turn. All threads call it, before the next turn but one ends; one warp
  // waits for the turn and the others for that warp.
  __device__ void Await(uint32_t turn) const {
    if (threadIdx.x < 32) barrier().Wait(turn);
    __syncthreads();
  }
};

// This block's place in its cluster. All threads of all blocks take part in a barrier.
class Cluster {
 public:
  __device__ Cluster() : group_(cooperative_groups::this_cluster()) {}

  __device__ uint32_t rank() const { return group_.block_rank(); }
  __device__ uint32_t size() const { return group_.num_blocks(); }
  // The address in block `rank` of the object that is `mine` in this block's shared memory.
  template <typename T>
  __device__ T* At(T* mine, uint32_t rank) const {
    return group_.map_shared_rank(mine, rank);
  }
  // The object of block `rank` that is `*mine` in this block's shared memory.
  __device__ float4 Read(const float4* mine, uint32_t rank) const {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(AddressAt(mine, rank))
                 : "memory");
    return x;
  }
  __device__ void Sync() const { group_.sync(); }
  // A barrier in two halves. It waits until all blocks run and orders no memory before it.
  __device__ void Arrive() const {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  __device__ void Wait() const { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

  // Send and Add write to the object of block `to` that is `mine` here, and count sizeof(T) bytes
  // in that block's `mailbox`.
  template <typename T>
  __device__ void Send(const T& value, T* mine, Mailbox& mailbox, uint32_t to) const {
    static_assert(sizeof(T) % 8 == 0 && alignof(T) >= 4);
    const uint32_t place = AddressAt(mine, to), box = AddressAt(&mailbox.state, to);
    uint64_t words[sizeof(T) / 8];
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 8); ++i) {
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
              place + i * 8),
          "l"(words[i]), "r"(box)
          : "memory");
    }
  }
  __device__ void Add(uint32_t value, uint32_t* mine, Mailbox& mailbox, uint32_t to) const {
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, "
        "[%2];" ::"r"(AddressAt(mine, to)),
        "r"(value), "r"(AddressAt(&mailbox.state, to))
        : "memory");
  }
  // Announces the bytes that this party sends to a mailbox of block `to` in the current turn,
  // before or after it sends them. Orders no other memory.
  __device__ void Announce(uint32_t bytes, Mailbox& mailbox, uint32_t to) const {
    asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                     AddressAt(&mailbox.state, to)),
                 "r"(bytes)
                 : "memory");
  }

 private:
  __device__ static uint32_t AddressAt(const void* mine, uint32_t rank) {
    uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(SharedAddress(mine)), "r"(rank));
    return address;
  }

  cooperative_groups::cluster_group group_;
};

}  // namespace quire::cuda
