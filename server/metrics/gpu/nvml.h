// Nvml: reads figures of GPUs from the driver's management library, which is opened at run time, so
// that a program without it runs, and a build needs no header of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/gpu/gpu_facts.h"

namespace quire {

// The file name under which every driver installs the library.
inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

class Nvml {
 public:
  // Opens the library. NOT_FOUND if it is missing or too old, UNAVAILABLE if it finds no driver.
  // May take a second.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library = kNvmlLibrary);
  ~Nvml();

  // The GPU with this UUID; NOT_FOUND if this host has none. `gpu` counts the GPUs found so far.
  absl::StatusOr<size_t> Find(const std::string& uuid);
  // The figures of a found GPU; what a share covers is the time since its last Read. May take
  // milliseconds, and does not return while the driver hangs. One thread at a time.
  GpuFacts Read(size_t gpu);

 private:
  struct State;
  explicit Nvml(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
