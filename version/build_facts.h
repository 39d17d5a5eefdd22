// BuildFacts: which source and which tools a program was built with. --version, /version, the RPC
// GetServerInfo and the metric quire_build_info show them.
#pragma once

#include <string>

namespace quire {

struct BuildFacts {
  const char* version;     // "0.1.0"
  const char* commit;      // 12 hexadecimal digits of the checked-out commit; else "unknown"
  const char* compiler;    // "GNU 12.2.0"
  const char* cuda;        // version of nvcc; "none" without the CUDA backend
  const char* build_type;  // "Release"
};

// The facts of this program, constants. Each program links this_build.cc, which the build writes
// anew after a commit; tests and benchmarks link test_build.cc, so that a commit leaves them alone.
const BuildFacts& ThisBuild();

// "commit 0123456789ab, GNU 12.2.0, CUDA 13.0.88, Release".
std::string Describe(const BuildFacts& build);
// A JSON object with the members' names.
std::string ToJson(const BuildFacts& build);

}  // namespace quire
