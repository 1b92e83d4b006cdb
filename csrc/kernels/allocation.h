// Blocks of memory that are reused, for tensors and for the scratch space of kernels.
//
// A released block is kept for the next minibatch, so that the steady state maps no memory and
// takes no page faults. The kept memory is bounded by the largest memory in use at one time
// (kKeepFactor). `empty_cache` returns all of it to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace pyg_batchgnn {

// Asks the system for huge pages inside [data, data + bytes): at once if possible (MADV_COLLAPSE,
// Linux 6.1), else over time. Contents and addresses do not change. A refusal is no error.
//
// Memory that a fork shares with other processes stays as it is. Three pages are looked at: one at
// the start, one in the middle and one near the end. If the system does not tell whether they are
// shared (/proc/self/pagemap cannot be read), huge pages are asked for over time only.
void advise_huge_pages(const void* data, size_t bytes);

struct AllocationStats {
  int64_t live_bytes;    // in blocks in use
  int64_t cached_bytes;  // in kept blocks
  int64_t peak_bytes;    // the largest sum of both since the last reset
  int64_t system_calls;  // requests to the system
};

// Thread-safe. Usable in a forked child, and from any thread until the process ends. Blocks are
// aligned to 64 bytes and uninitialised. allocate_block(0) is valid. Throws std::bad_alloc.
void* allocate_block(size_t bytes);
void release_block(void* block) noexcept;

// Returns the bytes that `block` can hold, at least the requested number.
size_t block_capacity(const void* block) noexcept;

void empty_cache() noexcept;
AllocationStats allocation_stats() noexcept;
void reset_peak() noexcept;

// A typed array on a block. It only grows, which keeps the first `keep` entries alone.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) release_block(data_);
  }

  T* data() const { return data_; }
  int64_t capacity() const {
    return data_ == nullptr ? 0 : static_cast<int64_t>(block_capacity(data_) / sizeof(T));
  }

  T* reserve(int64_t count, int64_t keep = 0);

  // Passes the block to the caller, who releases it.
  T* take() { return std::exchange(data_, nullptr); }

 private:
  T* data_ = nullptr;
};

template <class T>
T* Buffer<T>::reserve(int64_t count, int64_t keep) {
  if (data_ != nullptr && count <= capacity()) return data_;
  auto* bigger = static_cast<T*>(allocate_block(static_cast<size_t>(count) * sizeof(T)));
  for (int64_t i = 0; i < keep; ++i) bigger[i] = data_[i];
  if (data_ != nullptr) release_block(data_);
  return data_ = bigger;
}

}  // namespace pyg_batchgnn
