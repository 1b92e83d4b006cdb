#include "kernels/allocation.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace pyg_batchgnn {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
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

// Returns zeroed pages, aligned to a huge page if `bytes` fill one. Throws std::bad_alloc.
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

// There are four sizes per doubling: a new block is at most 29 % larger than requested.
constexpr int kStepBits = 2;
constexpr int kClasses = 64 << kStepBits;
constexpr size_t kSmallest = 1024;
constexpr int kBorrow = 2;      // a kept block may be this many classes larger
constexpr size_t kMargin = 32;  // a new block has room for this share more than was requested
constexpr double kKeepFactor = 1.5;
constexpr int64_t kAlwaysKept = int64_t{16} << 20;

// Lies in front of the returned memory, which stays aligned to 64 bytes.
struct alignas(64) Header {
  size_t bytes;  // of the whole block, header included
  int size_class;
};

int class_of(size_t bytes) {
  const size_t rounded = std::max(bytes, kSmallest) - 1;
  const int log = std::bit_width(rounded) - 1;
  const size_t step = (rounded >> (log - kStepBits)) & ((1u << kStepBits) - 1);
  return (log << kStepBits) + static_cast<int>(step) + 1;
}

size_t bytes_of(int size_class) {
  const size_t base = size_t{1} << (size_class >> kStepBits);
  const size_t step = static_cast<size_t>(size_class) & ((1u << kStepBits) - 1);
  return base + (base >> kStepBits) * step;
}

// Small blocks come from malloc. With one mapping per block they would reach the system's limit.
Header* new_block(size_t bytes) {
  if (bytes >= kHugePage) return static_cast<Header*>(map_pages(bytes));
  return static_cast<Header*>(::operator new(bytes, std::align_val_t{64}));
}

// Takes the page faults of a block that will be used again and again. Else they would come one by
// one, whenever another user of the block needs a little more of it than those before.
void touch_pages(Header* block, size_t bytes) {
  constexpr size_t kMost = size_t{16} << 20;
  if (bytes > kMost) return;
  auto* const byte = reinterpret_cast<volatile char*>(block);
  for (size_t at = 0; at < bytes; at += kPage) byte[at] = 0;
}

void delete_block(Header* block) noexcept {
  if (block->bytes >= kHugePage) {
    unmap_pages(block, block->bytes);
  } else {
    ::operator delete(static_cast<void*>(block), std::align_val_t{64});
  }
}

class Cache {
 public:
  Header* take(size_t bytes) {
    const int wanted = class_of(bytes);
    const std::lock_guard<std::mutex> guard(lock_);
    for (int size_class = wanted; size_class <= wanted + kBorrow && size_class < kClasses; ++size_class) {
      if (kept_[size_class].empty()) continue;
      Header* block = kept_[size_class].back();
      kept_[size_class].pop_back();
      move_bytes(block, 1);
      return block;
    }
    return make(class_of(bytes + bytes / kMargin));
  }

  void give(Header* block) noexcept {
    const std::lock_guard<std::mutex> guard(lock_);
    kept_[block->size_class].push_back(block);
    move_bytes(block, -1);
  }

  void drop_all() noexcept {
    const std::lock_guard<std::mutex> guard(lock_);
    drop_until(0);
    peak_live_ = live_;
  }

  AllocationStats stats() noexcept {
    const std::lock_guard<std::mutex> guard(lock_);
    return {live_, cached_, peak_, system_calls_};
  }

  void reset_peak() noexcept {
    const std::lock_guard<std::mutex> guard(lock_);
    peak_ = live_ + cached_;
  }

  std::mutex& lock() { return lock_; }

 private:
  // The caller asks for a little more than it needs now. The sizes of minibatches vary by some per
  // cent, and mapping a larger block later costs as much as several minibatches.
  Header* make(int size_class) {
    const size_t bytes = bytes_of(size_class);
    const auto more = static_cast<int64_t>(bytes);
    // The list has room for every block, because returning a block must not fail.
    ++made_[size_class];
    kept_[size_class].reserve(made_[size_class]);
    peak_live_ = std::max(peak_live_, live_ + more);
    const auto allowed = static_cast<int64_t>(kKeepFactor * static_cast<double>(peak_live_)) + kAlwaysKept;
    drop_until(std::max<int64_t>(0, allowed - live_ - more));
    Header* block = new_block(bytes);
    touch_pages(block, bytes);
    block->bytes = bytes;
    block->size_class = size_class;
    ++system_calls_;
    live_ += more;
    peak_ = std::max(peak_, live_ + cached_);
    return block;
  }

  void move_bytes(const Header* block, int64_t direction) noexcept {
    const auto bytes = direction * static_cast<int64_t>(block->bytes);
    live_ += bytes;
    cached_ -= bytes;
    peak_live_ = std::max(peak_live_, live_);
  }

  void drop_until(int64_t allowed) noexcept {
    for (int size_class = kClasses - 1; size_class >= 0 && cached_ > allowed; --size_class) {
      while (!kept_[size_class].empty() && cached_ > allowed) {
        Header* block = kept_[size_class].back();
        kept_[size_class].pop_back();
        --made_[size_class];
        cached_ -= static_cast<int64_t>(block->bytes);
        delete_block(block);
      }
    }
  }

  std::mutex lock_;
  std::array<std::vector<Header*>, kClasses> kept_;
  std::array<size_t, kClasses> made_{};
  int64_t live_ = 0, cached_ = 0, peak_ = 0, peak_live_ = 0, system_calls_ = 0;
};

// Never destroyed: a tensor may be freed after the static objects of this library.
Cache& cache() {
  static Cache* const instance = [] {
    auto* made = new Cache();
    // A child that is forked while another thread holds the lock would wait forever.
    pthread_atfork([] { cache().lock().lock(); }, [] { cache().lock().unlock(); },
                   [] { cache().lock().unlock(); });
    return made;
  }();
  return *instance;
}

Header* header_of(const void* block) { return static_cast<Header*>(const_cast<void*>(block)) - 1; }

}  // namespace

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

void* allocate_block(size_t bytes) { return cache().take(bytes + sizeof(Header)) + 1; }

void release_block(void* block) noexcept { cache().give(header_of(block)); }

size_t block_capacity(const void* block) noexcept { return header_of(block)->bytes - sizeof(Header); }

void empty_cache() noexcept { cache().drop_all(); }

AllocationStats allocation_stats() noexcept { return cache().stats(); }

void reset_peak() noexcept { cache().reset_peak(); }

}  // namespace pyg_batchgnn
