// One core's products as a share of what its arithmetic units can do, and vector code against
// plain.
#include <cctype>

#include "bench/kernels/roofline.h"
#include "bench/ratios/ratio.h"
#include "kernels/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/timed_cases.h"

namespace quire {
namespace {

std::unique_ptr<Backend> OneCore(cpu::Isa isa) {
  return std::move(CreateCpuBackends(CpuOptions{.threads_total = 1, .isa = isa})[0]);
}

// "AVX-512" as part of a name: "avx512".
std::string Word(cpu::Isa isa) {
  std::string word;
  for (const char c : std::string(cpu::Name(isa))) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return word;
}

template <typename Case>
std::function<void()> Proved(Case& c) {
  c.Run();
  CHECK(c.Right());
  return [&c] { c.Run(); };
}

}  // namespace

void AddKernelRatios(std::vector<Ratio>* ratios) {
  const MatMulShape prompt{64, 256, 1024, DType::kBF16}, decode{1, 256, 1024, DType::kBF16};
  const AttentionShape attention{1, 512, 64, 4, 2, 64, DType::kF32};
  const auto generic = OneCore(cpu::Isa::kGeneric);
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    if (isa == cpu::Isa::kGeneric) continue;
    const auto vector = OneCore(isa);
    const std::string word = Word(isa);
    MatMulCase fast_prompt(prompt, *vector), slow_prompt(prompt, *generic);
    MatMulCase fast_decode(decode, *vector), slow_decode(decode, *generic);
    AttentionCase fast_attention(attention, *vector), slow_attention(attention, *generic);
    ratios->push_back({"prompt_matmul_" + word + "_over_generic",
                       TimesFaster(Proved(fast_prompt), Proved(slow_prompt))});
    ratios->push_back({"decode_matmul_" + word + "_over_generic",
                       TimesFaster(Proved(fast_decode), Proved(slow_decode))});
    ratios->push_back({"attention_" + word + "_over_generic",
                       TimesFaster(Proved(fast_attention), Proved(slow_attention))});
    // The loop that does nothing but multiply and add, for as many operations.
    const double at_peak = fast_prompt.flops() / FmaPeak(isa, 1);
    const auto run = Proved(fast_prompt);
    double best = 1e9;
    for (int i = 0; i < 200; ++i) best = std::min(best, SecondsOf(run));
    ratios->push_back({"prompt_matmul_" + word + "_over_fma_peak", at_peak / best});
  }
}

}  // namespace quire
