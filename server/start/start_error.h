// ExitCode, StartError: how the process ends, and why it did not start.
#pragma once

#include "absl/status/status.h"

namespace quire {

// Exit codes of the process; docs/configuration.md explains them to operators.
enum class ExitCode : int {
  kOk = 0,
  kForced = 1,  // a second signal, or shutdown hung
  kBadConfig = 2,
  kCannotListen = 3,
  kModel = 4,    // the model cannot be loaded
  kDevice = 5,   // the device is missing, too small, or failed while serving
  kRefused = 6,  // the system refuses memory or threads
};

struct StartError {
  ExitCode code = ExitCode::kOk;
  absl::Status status;
};

}  // namespace quire
