// Progress: oneCCL moves bytes only while somebody asks it whether they have arrived.
//
// One thread of the engine starts all collectives, in the order of calls, and asks after them. With its own
// worker threads (CCL_WORKER_OFFLOAD=1) oneCCL would spin on pinned cores and end the process on any error.
// Callers never enter oneCCL: with shared memory a peer that is killed at the wrong moment leaves a lock
// behind on which libfabric spins for ever. Then the engine's thread is lost, and its watchdog, who knows
// nothing but the clock, ends what is under way.
//
// Nothing here waits without a limit, and nothing waits for a peer after an error: what has timed out or
// failed is left as it is for ever, memory included, for oneCCL and the peers may still touch it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/task.h"

namespace pyg_batchgnn {

class Engine {
 public:
  // The process's; never destroyed.
  static Engine& get();

  // Holds oneCCL's lock for a block. Throws where it is not had in time: a thread is stuck inside oneCCL.
  class Locked {
   public:
    explicit Locked(Clock::time_point deadline);
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
  };

  // Gives up a lock that this thread holds, for a block.
  class Unlocked {
   public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
  };

  // Hands a collective to the engine's thread. What goes wrong is the work's error, not this call's.
  void submit(std::unique_ptr<Task> task);

  // Something inside oneCCL was left in the middle: at the end of the process it is not asked to clean up,
  // which would wait for peers.
  void leave_as_it_is() { abandoned_ = true; }

  // Once oneCCL is loaded: has the end of the process come by here before oneCCL's own clean-up.
  void watch_exit();

 private:
  using Tasks = std::deque<std::unique_ptr<Task>>;
  struct Ended {
    std::unique_ptr<Task> task;
    std::exception_ptr error;
  };

  Engine();
  void run();                 // the engine's thread
  void keep_watch();          // the watchdog's
  bool turn();                // starts what has come and asks after what is under way; whether anything ended
  void start(Task& task);     // under the lock
  std::vector<Ended> poll();  // under the lock
  void fail_tasks(const Group& group, std::vector<Ended>& ended);
  static void announce(std::vector<Ended> ended);
  static void at_exit(int status, void* engine);

  std::timed_mutex lock_;       // of oneCCL and of active_
  Tasks active_;                // in the order of starting
  std::atomic<int> wanted_{0};  // threads that wait for the lock
  std::mutex inbox_lock_;       // of inbox_ and watched_; held for moments only
  std::condition_variable came_;
  Tasks inbox_;  // handed in and not yet started
  std::vector<std::pair<Clock::time_point, c10::weak_intrusive_ptr<CclWork>>> watched_;  // by deadline
  std::atomic<size_t> under_way_{0};
  std::atomic<bool> abandoned_{false};
};

}  // namespace pyg_batchgnn
