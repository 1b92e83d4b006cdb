// The parallel runtime: the only kernel that starts threads.
//
// Contract: `run_tasks(tasks, threads, body)` calls body(task, slot) once for every task in [0, tasks), on at
// most `threads` threads, the caller's among them, and returns when all calls have ended. Two calls that run
// at the same time have different slots, and slots are below `threads`. Tasks are handed out in ascending
// order as threads become free, so a result must not depend on the slot. The first exception of a body stops
// the handing out and is thrown to the caller after all threads have ended; none crosses a thread.
//
// Threads live for one call: starting one takes some forty microseconds, and in exchange there is no pool to
// keep alive, to lose in a fork or to take down at exit. But a process whose other work has a pool of threads
// may offer that as a team: threads of such a pool wait for their next work spinning, for milliseconds, on
// the very cores that ours need.
#pragma once

#include <cstdint>
#include <functional>

namespace pyg_batchgnn {

void run_tasks(int64_t tasks, int64_t threads, const std::function<void(int64_t task, int64_t slot)>& body);

// Calls work(context, slot) for each slot in [0, slots), some or all of them at the same time; or returns
// false and calls nothing where it cannot.
using ThreadPool = bool (*)(int64_t slots, void (*work)(void* context, int64_t slot), void* context);

// Takes the place of threads of its own where it can.
void offer_thread_pool(ThreadPool pool);

// Cuts [0, total) into at most `threads` ranges of at least `grain` and runs body(begin, end) on each.
void run_ranges(int64_t total, int64_t grain, int64_t threads,
                const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace pyg_batchgnn
