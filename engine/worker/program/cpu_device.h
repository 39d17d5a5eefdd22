// The CPU as a worker's device: one rank in a process of its own.
#pragma once

#include "engine/worker/program/worker_program.h"

namespace quire {

extern const WorkerDevice kCpuDevice;

}  // namespace quire
