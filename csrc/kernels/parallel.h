// The parallel runtime, the only kernel that starts threads.
//
// Contract: `run_tasks(tasks, threads, body)` calls body(task, slot) once for every task in [0,
// tasks), on at most `threads` threads, the caller's among them, and returns when all calls have
// ended. Two calls that run at the same time have different slots, and slots are below `threads`.
// Tasks are handed out in ascending order as threads become free, so a result must not depend on
// the slot. The first exception of a body stops the handing out and is thrown to the caller after
// all threads have ended; none crosses a thread.
//
// Threads live for one call. Starting one takes about forty microseconds; in return there is no
// pool to keep alive, to lose in a fork or to end at exit. A process that has a pool of threads
// anyway may offer it. The threads of such a pool wait for work in a loop, for milliseconds, on the
// cores that our threads need.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace pyg_batchgnn {

// A reference to a function object of two integers, which it does not own: for arguments only.
class TaskBody {
 public:
  template <class Function>
    requires(!std::is_same_v<Function, TaskBody>)
  TaskBody(const Function& function)
      : function_(std::addressof(function)),
        call_([](const void* of, int64_t a, int64_t b) { (*static_cast<const Function*>(of))(a, b); }) {}

  void operator()(int64_t a, int64_t b) const { call_(function_, a, b); }

 private:
  const void* function_;
  void (*call_)(const void* of, int64_t a, int64_t b);
};

void run_tasks(int64_t tasks, int64_t threads, TaskBody body);

// Calls work(context, slot) for each slot in [0, slots), possibly at the same time. Returns false
// and calls nothing if it cannot.
using ThreadPool = bool (*)(int64_t slots, void (*work)(void* context, int64_t slot), void* context);

// Sets the pool that run_tasks uses instead of its own threads; null for none.
void offer_thread_pool(ThreadPool pool);

// Cuts [0, total) into at most `threads` ranges of at least `grain`, and runs body(begin, end).
void run_ranges(int64_t total, int64_t grain, int64_t threads, TaskBody body);

}  // namespace pyg_batchgnn
