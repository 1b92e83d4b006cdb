#include "kernels/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string_view>

namespace pyg_batchgnn {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack and older kernels refuse

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// A file that is read without buffers. One that cannot be opened is empty.
class File {
 public:
  explicit File(const char* path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  // Returns the number of bytes that were read.
  size_t read(void* out, size_t bytes, size_t at) const {
    const auto got = pread(descriptor_, out, bytes, static_cast<off_t>(at));
    return static_cast<size_t>(std::max<ssize_t>(got, 0));
  }

 private:
  int descriptor_;
};

// Returns whether the system gives huge pages. MADV_COLLAPSE itself does not look at the setting.
bool has_huge_pages() {
  char setting[64];
  const size_t length = File("/sys/kernel/mm/transparent_hugepage/enabled").read(setting, sizeof(setting), 0);
  return std::string_view(setting, length).find("[never]") == std::string_view::npos;
}

// Returns whether other processes use the page of an address, as a parent and its forked children
// do. See proc_pid_pagemap(5).
bool is_shared(const File& pagemap, uintptr_t address) {
  constexpr uint64_t kPresent = uint64_t{1} << 63, kExclusive = uint64_t{1} << 56;
  const auto page = address / static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uint64_t entry = 0;
  if (pagemap.read(&entry, sizeof(entry), page * sizeof(entry)) != sizeof(entry)) return false;
  return (entry & kPresent) != 0 && (entry & kExclusive) == 0;
}

// Moves the contents of a range to huge pages. What is shared stays where it is, as this process
// would get a copy of its own. Only the first, the middle and the last huge page are looked at.
void collapse(uintptr_t start, uintptr_t end) {
  const File pagemap("/proc/self/pagemap");
  for (const uintptr_t address : {start, start + (end - start) / 2, end - kHugePage}) {
    if (is_shared(pagemap, address)) return;
  }
  madvise(reinterpret_cast<void*>(start), end - start, kCollapse);
}

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
  if (end <= start || !has_huge_pages()) return;
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
  collapse(start, end);
}

}  // namespace pyg_batchgnn
