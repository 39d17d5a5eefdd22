// The sections of --check on the device that would be taken, and on GPUs that are not here.
#pragma once

#include "server/start/check_report.h"
#include "server/start/checked_model.h"

namespace quire {

// The plan of the start.
CheckSection DescribeDevice(const CheckedModel& model);
// Whether the CUDA kernels can compute the model with these settings, and how many tokens of KV fit
// on GPUs of two usual sizes, by ranks. Asks no GPU.
CheckSection DescribeGpus(const CheckedModel& model);

}  // namespace quire
