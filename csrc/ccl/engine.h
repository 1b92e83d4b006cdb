// The engine makes progress: oneCCL moves bytes only while somebody asks whether they have arrived.
//
// One thread of the engine starts all collectives, in the order of calls, and polls them. oneCCL's
// own worker threads (CCL_WORKER_OFFLOAD=1) would spin on pinned cores and end the process on any
// error. Callers never enter oneCCL. With shared memory, a peer that is killed at the wrong moment
// leaves a lock behind on which libfabric spins forever. Then the engine's thread is lost, and its
// watchdog, which only looks at the clock, ends what is under way.
//
// Nothing here waits without a limit, and nothing waits for a peer after an error. What has timed
// out or failed is never freed, because oneCCL and the peers may still touch its memory.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/work.h"

namespace pyg_batchgnn {

class Engine {
 public:
  // Returns the process's engine, which is never destroyed.
  static Engine& get();

  // Holds oneCCL's lock for a block. Throws if a thread that is stuck inside oneCCL keeps it.
  class Locked {
   public:
    explicit Locked(Clock::time_point deadline);
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
  };

  // Releases a lock that this thread holds, for a block.
  class Unlocked {
   public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
  };

  // Gives a collective to the engine's thread. Errors are the work's, not this call's.
  void submit(std::unique_ptr<Task> task);

  // Records that something inside oneCCL was left in the middle. Then the end of the process does
  // not ask oneCCL to clean up, which would wait for peers.
  void leave_as_it_is() { abandoned_ = true; }

  // Ends the engine before the Python interpreter ends. Tensors that have a Python object can be
  // freed only with the interpreter's lock, and an interpreter that ends takes every thread that
  // asks for the lock out of the process by std::terminate. So what has not ended within a short
  // time is never freed. Call it without the interpreter's lock. Later collectives are an error.
  void rest();

  // Registers `at_exit`, once oneCCL is loaded, so that it runs before oneCCL's own clean-up.
  void watch_exit();

 private:
  using Tasks = std::deque<std::unique_ptr<Task>>;
  struct Ended {
    std::unique_ptr<Task> task;
    std::exception_ptr error;
  };

  Engine();
  void run();                 // the engine's thread
  void keep_watch();          // the watchdog's thread
  bool turn();                // starts and polls tasks; returns whether any ended
  void start(Task& task);     // under the lock
  std::vector<Ended> poll();  // under the lock
  void fail_tasks(const Group& group, std::vector<Ended>& ended);
  void announce(std::vector<Ended> ended);
  static void at_exit(int status, void* engine);

  std::timed_mutex lock_;       // guards oneCCL and active_
  Tasks active_;                // in the order of their start
  std::atomic<int> wanted_{0};  // threads that wait for the lock
  std::mutex inbox_lock_;       // guards inbox_ and watched_; held only briefly
  std::condition_variable came_;
  Tasks inbox_;  // submitted and not yet started
  std::vector<std::pair<Clock::time_point, c10::weak_intrusive_ptr<CclWork>>> watched_;  // by deadline
  std::atomic<size_t> under_way_{0};
  std::atomic<bool> abandoned_{false};
  std::mutex handing_over_;  // held while results are announced, and when resting_ is set
  std::atomic<bool> resting_{false};
};

}  // namespace pyg_batchgnn
