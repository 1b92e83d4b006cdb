#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace pyg_batchgnn {

void run_tasks(int64_t tasks, int64_t threads, const std::function<void(int64_t, int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto work = [&](int64_t slot) noexcept {
    try {
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) body(task, slot);
    } catch (...) {
      const std::lock_guard<std::mutex> guard(failure_lock);
      if (!failure) failure = std::current_exception();
      next.store(tasks, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> helpers;
  const int64_t wanted = std::clamp<int64_t>(std::min(threads, tasks), 1, 1024) - 1;
  helpers.reserve(static_cast<size_t>(wanted));
  try {
    for (int64_t slot = 1; slot <= wanted; ++slot) helpers.emplace_back(work, slot);
  } catch (const std::system_error&) {
    // The system has no more threads to give: the ones there are do the work.
  }
  work(0);
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

void run_ranges(int64_t total, int64_t grain, int64_t threads,
                const std::function<void(int64_t, int64_t)>& body) {
  const int64_t ranges = std::max<int64_t>(1, std::min(threads, total / std::max<int64_t>(grain, 1)));
  run_tasks(ranges, ranges,
            [&](int64_t range, int64_t) { body(total * range / ranges, total * (range + 1) / ranges); });
}

}  // namespace pyg_batchgnn
