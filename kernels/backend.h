// Backend: one rank's device, and all that stands between model code and hardware: its memory, the
// order of its work, its operations, and its exchange with the other ranks.
//
// Only the thread of its rank calls a Backend, CommandQueue::WaitFor aside. A device fault ends the
// process: faults are sticky, and a new worker process starts quickly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives.h"
#include "kernels/command_queue.h"
#include "kernels/device_memory.h"
#include "kernels/family_operations.h"
#include "kernels/operations.h"
#include "kernels/rank_exchange.h"
#include "kernels/reading.h"

namespace quire {

class Backend : public DeviceMemory,
                public CommandQueue,
                public Operations,
                public FamilyOperations,
                public ReadingOperations,
                public Collectives {
 public:
  // "cpu (AVX-512, 2 threads)": for logs and GetServerInfo.
  virtual std::string Describe() const = 0;
};

// `ranks` backends over this machine's cores that share one collective group; each must be driven
// by its own thread. threads_total counts the threads of all ranks; <= 0 takes every core of this
// process's affinity mask, within the quota of its control group.
std::vector<std::unique_ptr<Backend>> CreateCpuBackends(int ranks, int threads_total);

// The backend of one rank whose group is spread over processes; `threads` are its own. Returns when
// every rank has made the call. Null when the ranks cannot reach each other; `why` gives the
// reason.
std::unique_ptr<Backend> CreateCpuBackend(const RankPlace& place, int threads, std::string* why);

}  // namespace quire
