// CpuRelax: tells the core that the calling loop waits for another thread.
#pragma once

namespace quire {

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace quire
