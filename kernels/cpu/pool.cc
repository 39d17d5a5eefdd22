// Pool: jobs are independent and split over the threads.
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void Pool(const PoolParams& p, const Cores& cores) {
  CHECK(p.x.dtype == DType::kF32);
  const int64_t width = p.x.dim[1];
  cores.pool.ParallelFor(p.num_jobs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PoolJob& job = p.jobs[i];
      CHECK(job.begin >= 0 && job.begin + int64_t{job.count} <= p.x.dim[0]);
      if (job.adds == 0) std::fill_n(job.out, width, 0.0f);
      for (int64_t r = job.begin; r < job.begin + job.count; ++r) {
        const float* x = p.x.row<float>(r);
        for (int64_t h = 0; h < width; ++h) job.out[h] += x[h];
      }
    }
  });
}

}  // namespace quire::cpu
