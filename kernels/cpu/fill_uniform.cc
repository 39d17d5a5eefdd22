// FillUniform: each element has its own random counter, so the result does not depend on the split
// over threads.
#include "kernels/ceil_div.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/sampling_math.h"

namespace quire::cpu {
namespace {

void FillWords(const FillUniformParams& p, const Cores& cores) {
  CHECK_EQ(p.out.bytes() % 16, 0);
  uint32_t* const out = p.out.ptr<uint32_t>();
  cores.pool.ParallelFor(p.out.bytes() / 16, RowsPerRange(20), [&](int64_t begin, int64_t end) {
    for (int64_t quad = begin; quad < end; ++quad) {
      const Philox4 random = Philox4x32(p.seed, {{static_cast<uint32_t>(quad), 0, 0, 0}});
      for (int64_t i = 0; i < 4; ++i) out[quad * 4 + i] = random.word[i];
    }
  });
}

}  // namespace

void FillUniform(const FillUniformParams& p, const Cores& cores) {
  CHECK_EQ(p.out.size() == 0 ? 0 : p.out.row_stride * p.out.dim[0], p.out.size());  // dense
  if (IsPacked(p.out.dtype)) return FillWords(p, cores);
  DispatchElement(p.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = p.out.ptr<T>();
    cores.pool.ParallelFor(
        CeilDiv<int64_t>(p.out.size(), 4), RowsPerRange(40), [&](int64_t begin, int64_t end) {
          for (int64_t quad = begin; quad < end; ++quad) {
            const Philox4 random = Philox4x32(p.seed, {{static_cast<uint32_t>(quad), 0, 0, 0}});
            const int64_t count = std::min<int64_t>(4, p.out.size() - quad * 4);
            for (int64_t i = 0; i < count; ++i) {
              const float u = (static_cast<float>(random.word[i]) + 0.5f) * 0x1p-32f;
              out[quad * 4 + i] = FromFloat<T>(p.amplitude * (2.0f * u - 1.0f));
            }
          }
        });
  });
}

}  // namespace quire::cpu
