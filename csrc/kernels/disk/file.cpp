#include "kernels/disk/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#if defined(__linux__)
#include <sys/syscall.h>
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif

namespace pyg_batchgnn {
namespace {

class SystemFile final : public PlainFile {
 public:
  explicit SystemFile(int file) : file_(file) {}

  int64_t read(char* memory, int64_t bytes, int64_t offset) override {
    const ssize_t found = pread(file_, memory, static_cast<size_t>(bytes), offset);
    return found < 0 ? -errno : found;
  }

 private:
  const int file_;
};

// io_uring ////////////////////////////////////////////////////////////////////////////////////////

#if defined(IORING_FEAT_SINGLE_MMAP) && defined(SYS_io_uring_setup)

// Memory that is shared with the kernel.
class Mapping {
 public:
  ~Mapping() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }

  bool map(int file, size_t bytes, off_t offset) {
    bytes_ = bytes;
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, offset);
    return data_ != MAP_FAILED;
  }

  template <class T>
  T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
  }

 private:
  void* data_ = MAP_FAILED;
  size_t bytes_ = 0;
};

// The words of a ring that the kernel writes or reads at the same time.
uint32_t load(const uint32_t* word) {
  return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
}
void store(uint32_t* word, uint32_t value) {
  std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
}

// The rings of io_uring(7): requests go into one, ends come out of the other.
class Rings final : public ReadQueue {
 public:
  ~Rings() override {
    if (rings_ >= 0) close(rings_);
  }

  bool open(int file, int64_t depth) {
    file_ = file;
    vectors_.resize(static_cast<size_t>(depth));
    io_uring_params found{};
    // Ends are looked for by the thread that waits, which saves interrupts. Linux 6.1 knows both.
#if defined(IORING_SETUP_DEFER_TASKRUN)
    rings_ = setup(depth, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, found);
#endif
    if (rings_ < 0) rings_ = setup(depth, 0, found);
    if (rings_ < 0 || !(found.features & IORING_FEAT_SINGLE_MMAP)) return false;
    const size_t bytes = std::max(found.sq_off.array + found.sq_entries * sizeof(uint32_t),
                                  found.cq_off.cqes + found.cq_entries * sizeof(io_uring_cqe));
    if (!shared_.map(rings_, bytes, IORING_OFF_SQ_RING)) return false;
    if (!requests_.map(rings_, found.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) return false;
    request_tail_ = shared_.at<uint32_t>(found.sq_off.tail);
    request_order_ = shared_.at<uint32_t>(found.sq_off.array);
    request_mask_ = found.sq_entries - 1;
    end_head_ = shared_.at<uint32_t>(found.cq_off.head);
    end_tail_ = shared_.at<uint32_t>(found.cq_off.tail);
    ends_ = shared_.at<io_uring_cqe>(found.cq_off.cqes);
    end_mask_ = found.cq_entries - 1;
    // A quarter of the queue is handed over at once, so that the device has work meanwhile.
    batch_ = static_cast<uint32_t>(std::max<int64_t>(1, depth / 4));
    return true;
  }

  void start(int64_t slot, char* memory, int64_t bytes, int64_t offset) override {
    iovec& vector = vectors_[static_cast<size_t>(slot)];
    vector = {memory, static_cast<size_t>(bytes)};
    const uint32_t tail = *request_tail_, at = tail & request_mask_;
    auto& request = requests_.at<io_uring_sqe>(0)[at];
    std::memset(&request, 0, sizeof(request));
    request.opcode = IORING_OP_READV;
    request.fd = file_;
    request.addr = reinterpret_cast<uint64_t>(&vector);
    request.len = 1;
    request.off = static_cast<uint64_t>(offset);
    request.user_data = static_cast<uint64_t>(slot);
    request_order_[at] = at;
    store(request_tail_, tail + 1);
    ++waiting_;
  }

  ReadEnd wait() override {
    if (waiting_ >= batch_) hand_over(0);
    while (load(end_tail_) == *end_head_) hand_over(1);
    const uint32_t head = *end_head_;
    const io_uring_cqe& end = ends_[head & end_mask_];
    const ReadEnd found{static_cast<int64_t>(end.user_data), end.res};
    store(end_head_, head + 1);
    return found;
  }

 private:
  static int setup(int64_t depth, uint32_t flags, io_uring_params& found) {
    found = {};
    found.flags = flags;
    return static_cast<int>(syscall(SYS_io_uring_setup, static_cast<uint32_t>(depth), &found));
  }

  // Hands requests to the kernel and waits for that number of ends.
  void hand_over(uint32_t ends) {
    const uint32_t flags = ends ? IORING_ENTER_GETEVENTS : 0;
    const long taken = syscall(SYS_io_uring_enter, rings_, waiting_, ends, flags, nullptr, 0);
    if (taken >= 0) {
      waiting_ -= static_cast<uint32_t>(taken);
    } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
      throw std::system_error(errno, std::generic_category(), "io_uring_enter");
    }
  }

  int file_ = -1, rings_ = -1;
  Mapping shared_, requests_;
  std::vector<iovec> vectors_;  // by slot
  uint32_t *request_tail_ = nullptr, *request_order_ = nullptr;
  uint32_t *end_head_ = nullptr, *end_tail_ = nullptr;
  io_uring_cqe* ends_ = nullptr;
  uint32_t request_mask_ = 0, end_mask_ = 0;
  uint32_t waiting_ = 0, batch_ = 1;  // requests that the kernel has not been told of
};

#endif

}  // namespace

std::unique_ptr<PlainFile> plain_file(int file) { return std::make_unique<SystemFile>(file); }

std::unique_ptr<ReadQueue> read_queue([[maybe_unused]] int file, [[maybe_unused]] int64_t depth) {
#if defined(IORING_FEAT_SINGLE_MMAP) && defined(SYS_io_uring_setup)
  auto queue = std::make_unique<Rings>();
  if (queue->open(file, depth)) return queue;
#endif
  return nullptr;
}

int64_t direct_block(int file) {
  constexpr int64_t kUnknown = 4096;
#if defined(STATX_DIOALIGN)
  struct statx found{};
  if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) != 0) return kUnknown;
  if (!(found.stx_mask & STATX_DIOALIGN)) return kUnknown;
  const uint32_t align = std::max(found.stx_dio_mem_align, found.stx_dio_offset_align);
  return align == 0 ? 0 : std::max<int64_t>(512, std::bit_ceil(align));
#else
  static_cast<void>(file);
  return kUnknown;
#endif
}

}  // namespace pyg_batchgnn
