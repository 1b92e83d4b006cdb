// Progress: oneCCL moves bytes only while somebody asks it whether they have arrived.
//
// oneCCL is used by one thread at a time, whoever holds the engine's lock. Collectives are started where they
// are called, in the order of calls, and asked after by whoever waits for one; while nobody waits a thread of
// the engine asks. With its own worker threads (CCL_WORKER_OFFLOAD=1) oneCCL would spin on pinned cores and
// end the process on any error.
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

#include "ccl/task.h"

namespace pyg_batchgnn {

class Engine {
 public:
  // The process's; never destroyed.
  static Engine& get();

  // Holds the lock for a block. Throws where it is not had in time: another thread is stuck inside oneCCL.
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

  // Starts a collective. What goes wrong is the work's error, not this call's.
  void submit(std::unique_ptr<Task> task);

  // Makes progress until `done`, or until the time has come.
  void drive(const std::function<bool()>& done, Clock::time_point until);

  // Something inside oneCCL was left in the middle: at the end of the process it is not asked to clean up,
  // which would wait for peers.
  void leave_as_it_is() { abandoned_ = true; }

  // Once oneCCL is loaded: has the end of the process come by here before oneCCL's own clean-up.
  void watch_exit();

 private:
  struct Ended {
    std::unique_ptr<Task> task;
    std::exception_ptr error;
  };

  Engine();
  void run();                 // the background thread
  std::vector<Ended> poll();  // under the lock
  void start(Task& task);     // under the lock
  void fail_tasks(const Group& group, std::vector<Ended>& ended);
  static void announce(std::vector<Ended> ended);
  bool poll_once();
  static void at_exit(int status, void* engine);

  std::timed_mutex lock_;                     // of oneCCL, and of what follows
  std::deque<std::unique_ptr<Task>> active_;  // in the order of starting
  std::atomic<int> wanted_{0};                // threads that wait for the lock
  std::atomic<int> drivers_{0};
  std::atomic<size_t> under_way_{0};
  std::atomic<bool> abandoned_{false};
  std::mutex rest_;  // with awake_: the background thread rests while there is nothing to do
  std::condition_variable awake_;
};

}  // namespace pyg_batchgnn
