// An NVIDIA GPU as a worker's device: the one whose number is the rank. Refused where the backend
// was not built.
#pragma once

#include "engine/worker/program/worker_program.h"

namespace quire {

extern const WorkerDevice kGpuDevice;

}  // namespace quire
