// Memory for large arrays that are read here and there: in pages of 2 MiB where the system has
// them, since the addresses of small ones would have to be looked up again and again.
//
// Cost: an array of less than kLeast bytes comes from the heap; others begin at a page's border.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace orrery {

template <class T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT: containers convert allocators

  T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    if (bytes < kLeast) return static_cast<T*>(::operator new(bytes));
    void* const memory = ::operator new (bytes, std::align_val_t{kPage});
    (void)madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: without it pages are small
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t n) {
    if (n * sizeof(T) < kLeast) {
      ::operator delete(memory);
    } else {
      ::operator delete (memory, std::align_val_t{kPage});
    }
  }
  friend bool operator==(const HugePages&, const HugePages&) { return true; }

 private:
  static constexpr std::size_t kPage = std::size_t{1} << 21, kLeast = 4 * kPage;
};

}  // namespace orrery
