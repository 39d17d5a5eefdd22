// Prints the rates of this machine as one line of JSON: bytes read per second over a given working
// set and fused multiply-adds per second, by all threads of this process.
//
// usage: roofline BYTES
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "bench/kernels/roofline.h"

int main(int argc, char** argv) {
  const long bytes = argc == 2 ? std::atol(argv[1]) : 0;
  if (bytes < 1 << 16) {
    std::fprintf(stderr, "usage: %s BYTES (at least 65536)\n", argv[0]);
    return 2;
  }
  const std::vector<char> data(static_cast<size_t>(bytes), 1);
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const quire::cpu::Isa isa = quire::cpu::BestIsa();
  std::printf(
      "{\"threads\": %d, \"isa\": \"%s\", \"bytes\": %ld, \"bytes_per_second\": %.4g, "
      "\"flops_per_second\": %.4g}\n",
      threads, quire::cpu::Name(isa), bytes,
      quire::ReadBandwidth(data.data(), data.size(), threads), quire::FmaPeak(isa, threads));
  return 0;
}
