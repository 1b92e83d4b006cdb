// Blocks of memory that are used again: what the user is handed (tensors) and what kernels need for
// themselves.
//
// A block given back is kept for the next minibatch, so that the steady state maps no memory and takes no
// page faults. What is kept is bounded by what was once in use at the same time (kKeepFactor), so one large
// minibatch or a user who kept a whole epoch does not hold memory for ever beyond that; `empty_cache` gives
// all of it back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace pyg_batchgnn {

struct AllocationStats {
  int64_t live_bytes;    // in blocks that somebody holds
  int64_t cached_bytes;  // in blocks kept for later
  int64_t peak_bytes;    // highest sum of both since the last reset
  int64_t system_calls;  // how often the system was asked for memory
};

// Thread-safe; usable in a forked child, and from any thread until the process ends. Aligned to 64 bytes,
// contents arbitrary. allocate_block(0) is valid. Throws std::bad_alloc.
void* allocate_block(size_t bytes);
void release_block(void* block) noexcept;

// Bytes that `block` can hold, at least what was asked for.
size_t block_capacity(const void* block) noexcept;

void empty_cache() noexcept;
AllocationStats allocation_stats() noexcept;
void reset_peak() noexcept;

// A typed array on such a block that only grows. Growing keeps the first `keep` entries and leaves the rest
// arbitrary.
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

  // Hands the block over to the caller, who releases it.
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
