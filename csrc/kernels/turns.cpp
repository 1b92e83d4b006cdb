#include "kernels/turns.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace pyg_batchgnn {
namespace {

using Clock = std::chrono::steady_clock;

static_assert(std::atomic_ref<uint32_t>::is_always_lock_free, "processes share the word, not a lock");

uint32_t load(const uint32_t* word) {
  return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
}

bool has_come(uint32_t seen, uint32_t turn) { return static_cast<int32_t>(seen - turn) >= 0; }

#if defined(__linux__)

void wake(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

// Sleeps until the word is no longer `seen`. Returns false if a signal came.
bool sleep_while(const uint32_t* word, uint32_t seen, double seconds) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_nsec = static_cast<long>((seconds - static_cast<double>(limit.tv_sec)) * 1e9);
  return syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, nullptr, 0) == 0 || errno != EINTR;
}

#else

void wake(uint32_t*) {}

bool sleep_while(const uint32_t*, uint32_t, double) {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  return true;
}

#endif

}  // namespace

void announce_turn(uint32_t* word, uint32_t turn) {
  std::atomic_ref<uint32_t>(*word).store(turn, std::memory_order_release);
  wake(word);
}

bool wait_for_turn(const uint32_t* word, uint32_t turn, double seconds) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (uint32_t seen = load(word); !has_come(seen, turn); seen = load(word)) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (left <= 0 || !sleep_while(word, seen, left)) return has_come(load(word), turn);
  }
  return true;
}

}  // namespace pyg_batchgnn
