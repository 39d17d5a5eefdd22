// An NVIDIA GPU as a worker's device: the rank's own, by number. Where the backend was not built,
// there is none.
#pragma once

#include "engine/worker/program/worker_program.h"

namespace quire {

extern const WorkerDevice kGpuDevice;

}  // namespace quire
