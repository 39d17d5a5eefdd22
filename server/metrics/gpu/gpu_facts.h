// GpuFacts: figures of one GPU at one moment. A figure that the driver does not give is empty.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace quire {

struct GpuFacts {
  using Figure = std::optional<double>;

  // Why clocks are below their maximum.
  enum Limit : uint8_t {
    kIdle,
    kUserClocks,
    kPowerCap,
    kHardware,
    kSyncBoost,
    kSoftwareThermal,
    kHardwareThermal,
    kPowerBrake,
    kDisplayClocks,
    kLimits
  };
  // Errors of the NVLink connections, all links together.
  enum LinkError : uint8_t { kReplay, kRecovery, kCrcFlit, kCrcData, kLinkErrors };

  std::string uuid;   // "GPU-..."
  std::string index;  // the driver's number, "0", "1", ...

  // Of the last sample period of the driver, 0 to 1.
  Figure busy;         // time in which any kernel ran
  Figure sm_busy;      // mean share of the multiprocessors that were busy
  Figure tensor_busy;  // time in which the tensor cores worked
  Figure memory_busy;  // memory bandwidth used, of the theoretical maximum
  Figure memory_used_bytes, memory_total_bytes;
  Figure power_watts, power_limit_watts;
  Figure energy_joules;  // since the driver was loaded
  Figure temperature_celsius;
  Figure sm_clock_hertz, sm_clock_max_hertz, memory_clock_hertz;
  std::array<Figure, kLimits> limits;           // 0 or 1
  Figure ecc_corrected, ecc_uncorrected;        // errors since the driver was loaded
  Figure link_sent_bytes, link_received_bytes;  // over NVLink, since the driver was loaded
  std::array<Figure, kLinkErrors> link_errors;  // likewise
};

}  // namespace quire
