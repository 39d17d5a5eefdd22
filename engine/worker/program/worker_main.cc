// quire-worker: executes its server's plans on the devices of this build.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/worker/program/cpu_device.h"
#include "engine/worker/program/gpu_device.h"
#include "engine/worker/program/worker_program.h"
#include "version/build_facts.h"

namespace quire {
namespace {

// The folder that keeps slow measurements between starts.
std::string CacheDir() {
  if (const char* dir = std::getenv("XDG_CACHE_HOME"); dir != nullptr && *dir == '/') {
    return std::string(dir) + "/quire";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.cache/quire";
  }
  return "";
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    const quire::BuildFacts& build = quire::ThisBuild();
    std::printf("quire-worker %s (%s)\n", build.version, quire::Describe(build).c_str());
    return 0;
  }
  // NVLink multicast can put a host's GPUs out of service when a process dies in it. NCCL reads
  // this.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  const std::array devices = {quire::kCpuDevice, quire::kGpuDevice};
  return quire::RunWorkerProgram(argc, argv, devices, quire::CacheDir());
}
