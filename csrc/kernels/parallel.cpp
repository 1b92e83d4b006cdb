#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace pyg_batchgnn {
namespace {

std::atomic<ThreadPool> offered{nullptr};

// Hands out the tasks of one call.
class Tasks {
 public:
  Tasks(int64_t count, TaskBody body) : count_(count), body_(body) {}

  void work(int64_t slot) noexcept {
    try {
      for (int64_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) body_(task, slot);
    } catch (...) {
      const std::lock_guard<std::mutex> guard(failure_lock_);
      if (!failure_) failure_ = std::current_exception();
      next_.store(count_, std::memory_order_relaxed);
    }
  }

  void on_own_threads(int64_t slots) {
    std::vector<std::thread> helpers;
    helpers.reserve(static_cast<size_t>(slots - 1));
    try {
      for (int64_t slot = 1; slot < slots; ++slot) helpers.emplace_back([this, slot] { work(slot); });
    } catch (const std::system_error&) {
      // The system has no more threads. The existing ones do the work.
    }
    work(0);
    for (std::thread& helper : helpers) helper.join();
  }

  bool on_thread_pool(int64_t slots) {
    const ThreadPool pool = slots > 1 ? offered.load() : nullptr;
    return pool != nullptr &&
           pool(slots, [](void* tasks, int64_t slot) { static_cast<Tasks*>(tasks)->work(slot); }, this);
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const int64_t count_;
  const TaskBody body_;
  std::atomic<int64_t> next_{0};
  std::exception_ptr failure_;
  std::mutex failure_lock_;
};

}  // namespace

void offer_thread_pool(ThreadPool pool) { offered.store(pool); }

void run_tasks(int64_t tasks, int64_t threads, TaskBody body) {
  Tasks all(tasks, body);
  const int64_t slots = std::clamp<int64_t>(std::min(threads, tasks), 1, 1024);
  if (!all.on_thread_pool(slots)) all.on_own_threads(slots);
  all.rethrow();
}

void run_ranges(int64_t total, int64_t grain, int64_t threads, TaskBody body) {
  const int64_t ranges = std::max<int64_t>(1, std::min(threads, total / std::max<int64_t>(grain, 1)));
  run_tasks(ranges, ranges,
            [&](int64_t range, int64_t) { body(total * range / ranges, total * (range + 1) / ranges); });
}

}  // namespace pyg_batchgnn
