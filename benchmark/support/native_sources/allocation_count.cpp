// Counts what a process asks of the C allocator, without changing it. Preload it (LD_PRELOAD) and
// read the counters through the exported functions.
//
// "Large" is a page or more: small blocks come from the free lists of a thread and touch no new
// memory.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace {

constexpr std::size_t kLarge = 4096;

std::atomic<std::uint64_t> calls{0};
std::atomic<std::uint64_t> large_calls{0};
std::atomic<std::uint64_t> large_bytes{0};

void* count(void* block, std::size_t bytes) {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (bytes >= kLarge) {
    large_calls.fetch_add(1, std::memory_order_relaxed);
    large_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  return block;
}

}  // namespace

extern "C" {

// glibc's own entry points: no lookup by name, which would itself allocate.
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) { return count(__libc_malloc(bytes), bytes); }

void* calloc(std::size_t number, std::size_t bytes) {
  return count(__libc_calloc(number, bytes), number * bytes);
}

void* realloc(void* block, std::size_t bytes) { return count(__libc_realloc(block, bytes), bytes); }

void* memalign(std::size_t alignment, std::size_t bytes) {
  return count(__libc_memalign(alignment, bytes), bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  void* found = memalign(alignment, bytes);
  if (found == nullptr) return ENOMEM;
  *block = found;
  return 0;
}

std::uint64_t benchmark_allocation_calls() { return calls.load(std::memory_order_relaxed); }
std::uint64_t benchmark_large_allocation_calls() { return large_calls.load(std::memory_order_relaxed); }
std::uint64_t benchmark_large_allocation_bytes() { return large_bytes.load(std::memory_order_relaxed); }

}  // extern "C"
