#include "kernels/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace pyg_batchgnn {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack and older kernels refuse

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

void* map_pages(size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const size_t slack = huge ? kHugePage : 0;
  const size_t length = round_up(bytes, 4096);
  void* raw = mmap(nullptr, length + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  if (!huge) return raw;
  // Returns the memory before and after the aligned part, so that unmap_pages need not know it.
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, kHugePage);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = start + length + slack, used = aligned + length;
  if (end > used) munmap(reinterpret_cast<void*>(used), end - used);
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(aligned), length, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<void*>(aligned);
}

void unmap_pages(void* pages, size_t bytes) noexcept {
  if (pages != nullptr) munmap(pages, round_up(bytes, 4096));
}

void advise_huge_pages(const void* data, size_t bytes) noexcept {
  const auto start = round_up(reinterpret_cast<uintptr_t>(data), kHugePage);
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (end <= start) return;
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
  madvise(reinterpret_cast<void*>(start), end - start, kCollapse);
}

}  // namespace pyg_batchgnn
