// The exit codes of `quire`, for scripts.
#pragma once

namespace quire::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitLocal = 1;    // cannot read, cannot write, or the server broke protocol
inline constexpr int kExitUsage = 2;    // a mistake on the command line
inline constexpr int kExitRefused = 6;  // the system refuses memory or threads
inline constexpr int kExitStatusBase = 10;    // plus the gRPC status code: 11 to 26
inline constexpr int kExitInterrupted = 130;  // as shells report SIGINT

}  // namespace quire::cli
