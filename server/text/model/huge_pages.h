// HugePages: an allocator for large tables that are read at random places. It asks the system for
// huge pages, of which a table has few enough that the processor finds each without a walk through
// the page tables. Any thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace quire {

template <class T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT: containers convert allocators

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    void* const memory = ::operator new(bytes, AlignmentOf(bytes));
    // A system that refuses gives small pages, which are only slower.
    if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    ::operator delete(memory, AlignmentOf(count * sizeof(T)));
  }
  bool operator==(const HugePages&) const = default;

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;  // bytes
  static std::align_val_t AlignmentOf(size_t bytes) {
    return std::align_val_t{bytes >= kHugePage ? kHugePage : alignof(std::max_align_t)};
  }
};

}  // namespace quire
