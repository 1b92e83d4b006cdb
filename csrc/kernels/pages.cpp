#include "kernels/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <new>
#include <string>

namespace pyg_batchgnn {
namespace {

constexpr size_t kPage = 4096;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack and older kernels refuse

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Returns whether the system gives huge pages. MADV_COLLAPSE itself does not look at the setting.
bool has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  std::getline(file, setting);
  return setting.find("[never]") == std::string::npos;
}

enum class Sharing { kNone, kSome, kUnknown };

// Tells whether other processes use a range as well, as a parent and its forked children do. Looks
// at one page at the start, one in the middle and one near the end. See proc_pid_pagemap(5).
Sharing sharing_of(uintptr_t start, uintptr_t end) {
  constexpr uint64_t kPresent = uint64_t{1} << 63, kExclusive = uint64_t{1} << 56;
  std::ifstream file;
  file.rdbuf()->pubsetbuf(nullptr, 0);  // the system refuses reads of other sizes than entries
  file.open("/proc/self/pagemap", std::ios::binary);
  for (const uintptr_t address : {start, start + (end - start) / 2, end - kHugePage}) {
    uint64_t entry = 0;
    file.seekg(static_cast<std::streamoff>(address / kPage * sizeof(entry)));
    if (!file.read(reinterpret_cast<char*>(&entry), sizeof(entry))) return Sharing::kUnknown;
    if ((entry & kPresent) != 0 && (entry & kExclusive) == 0) return Sharing::kSome;
  }
  return Sharing::kNone;
}

}  // namespace

void* map_pages(size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const size_t slack = huge ? kHugePage : 0;
  const size_t length = round_up(bytes, kPage);
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
  if (pages != nullptr) munmap(pages, round_up(bytes, kPage));
}

void advise_huge_pages(const void* data, size_t bytes) {
  const auto start = round_up(reinterpret_cast<uintptr_t>(data), kHugePage);
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (end <= start || !has_huge_pages()) return;
  const Sharing sharing = sharing_of(start, end);
  if (sharing == Sharing::kSome) return;  // this process would get a copy of its own
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
  if (sharing == Sharing::kNone) madvise(reinterpret_cast<void*>(start), end - start, kCollapse);
}

}  // namespace pyg_batchgnn
