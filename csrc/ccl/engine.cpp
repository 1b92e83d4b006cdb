#include "ccl/engine.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "ccl/group.h"

namespace pyg_batchgnn {
namespace {

// The pauses between two polls: short while an answer is near, longer while a peer is far behind.

class Backoff {
 public:
  // For the first `eager` microseconds a pause only yields the processor. After that it sleeps a
  // thousandth of the time waited, at most a millisecond.
  explicit Backoff(std::chrono::microseconds eager) : eager_(eager) { restart(); }

  void restart() { since_ = std::chrono::steady_clock::now(); }

  std::chrono::nanoseconds waited() const { return std::chrono::steady_clock::now() - since_; }

  void pause() const {
    if (waited() < eager_) {
      std::this_thread::yield();
    } else {
      const std::chrono::nanoseconds longest = std::chrono::milliseconds(1);
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited() / 1000, longest));
    }
  }

 private:
  const std::chrono::microseconds eager_;
  std::chrono::steady_clock::time_point since_;
};

// After an event the engine's thread polls without sleeping for kEager. With nothing under way it
// polls for kStay, and then waits for a task.
constexpr std::chrono::microseconds kEager(20000);
constexpr std::chrono::microseconds kStay(100);

// The watchdog looks at this interval, and gives the engine this long after a deadline.
constexpr std::chrono::milliseconds kLook(250);
constexpr std::chrono::milliseconds kGrace(1000);

// The end of the process waits this long for what is under way.
constexpr std::chrono::milliseconds kPatience(500);

std::exception_ptr error_of(const std::string& text) {
  try {
    C10_THROW_ERROR(DistBackendError, text);
  } catch (...) {
    return std::current_exception();
  }
}

std::string seconds(Clock::duration time) {
  const double value = std::chrono::duration<double>(time).count();
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

}  // namespace

Engine& Engine::get() {
  static Engine* engine = new Engine;
  return *engine;
}

Engine::Engine() {
  std::thread([this] { run(); }).detach();
  std::thread([this] { keep_watch(); }).detach();
}

Engine::Locked::Locked(Clock::time_point deadline) {
  Engine& engine = get();
  ++engine.wanted_;
  const bool held = engine.lock_.try_lock_until(deadline);
  --engine.wanted_;
  TORCH_CHECK_WITH(
      DistBackendError, held,
      "ccl: timed out; another thread of this process is stuck inside oneCCL, most likely making a "
      "group with a rank that has died");
}

Engine::Locked::~Locked() { get().lock_.unlock(); }

Engine::Unlocked::Unlocked() { get().lock_.unlock(); }

Engine::Unlocked::~Unlocked() {
  ++get().wanted_;
  get().lock_.lock();
  --get().wanted_;
}

void Engine::submit(std::unique_ptr<Task> task) {
  TORCH_CHECK_WITH(DistBackendError, !resting_, "ccl: ", task->name,
                   " was called while the process ends; call it before the script ends");
  const std::lock_guard<std::mutex> lock(inbox_lock_);
  watched_.emplace_back(task->deadline, c10::weak_intrusive_ptr<CclWork>(task->work));
  inbox_.push_back(std::move(task));
  ++under_way_;
  came_.notify_all();
}

void Engine::run() {
  while (true) {
    {
      std::unique_lock<std::mutex> lock(inbox_lock_);
      came_.wait(lock, [this] { return under_way_ > 0; });
    }
    Backoff backoff(kEager);
    while (under_way_ > 0 || backoff.waited() < kStay) {
      if (turn()) {
        backoff.restart();
      } else {
        backoff.pause();
      }
    }
  }
}

void Engine::keep_watch() {
  while (true) {
    {
      std::unique_lock<std::mutex> lock(inbox_lock_);
      came_.wait(lock, [this] { return !watched_.empty(); });
    }
    std::this_thread::sleep_for(kLook);
    const std::lock_guard<std::mutex> handing_over(handing_over_);
    if (resting_) return;
    std::vector<c10::intrusive_ptr<CclWork>> late;
    {
      const std::lock_guard<std::mutex> lock(inbox_lock_);
      const auto now = Clock::now();
      std::erase_if(watched_, [&](const auto& entry) {
        const auto work = entry.second.lock();
        if (!work || work->isCompleted()) return true;
        if (now < entry.first + kGrace) return false;
        late.push_back(work);
        return true;
      });
    }
    for (const auto& work : late) {
      leave_as_it_is();
      work->end(error_of("ccl: timed out, and oneCCL does not come back: a rank has died inside it"));
    }
  }
}

void Engine::start(Task& task) {
  if (!task.group->broken().empty()) return;  // `poll` reports it
  try {
    for (const Start& call : task.starts) task.events.push_back(call(task.group->communicator()));
  } catch (const std::exception& error) {
    task.group->abandon(c10::str("oneCCL refused ", task.name, ": ", error.what()));
  }
}

bool Engine::turn() {
  if (wanted_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));  // locks are not fair
  if (!lock_.try_lock_for(std::chrono::milliseconds(1))) return false;
  Tasks come;
  {
    const std::lock_guard<std::mutex> lock(inbox_lock_);
    come.swap(inbox_);
  }
  for (auto& task : come) {
    start(*task);
    active_.push_back(std::move(task));
  }
  std::vector<Ended> ended = poll();
  lock_.unlock();
  const bool moved = !ended.empty();
  announce(std::move(ended));  // without the lock, because futures call back
  return moved;
}

std::vector<Engine::Ended> Engine::poll() {
  std::vector<Ended> ended;
  for (size_t at = 0; at < active_.size();) {
    Task& task = *active_[at];
    try {
      while (task.group->broken().empty() && task.ended < task.events.size() &&
             task.events[task.ended].test()) {
        ++task.ended;
      }
      if (task.group->broken().empty() && task.ended == task.events.size()) {
        for (const auto& action : task.at_end) action();
        ended.push_back({std::move(active_[at]), nullptr});
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(at));
        --under_way_;
        continue;
      }
      if (task.group->broken().empty() && Clock::now() >= task.deadline) {
        task.group->abandon(c10::str(task.name, " timed out after ", seconds(Clock::now() - task.submitted),
                                     ": a rank has not come, or has died"));
      }
    } catch (const std::exception& error) {
      task.group->abandon(c10::str(task.name, " failed: ", error.what()));
    }
    if (!task.group->broken().empty()) {
      const std::shared_ptr<Group> group = task.group;
      fail_tasks(*group, ended);
      at = 0;
    } else {
      ++at;
    }
  }
  return ended;
}

void Engine::fail_tasks(const Group& group, std::vector<Ended>& ended) {
  for (size_t at = 0; at < active_.size();) {
    if (active_[at]->group.get() != &group) {
      ++at;
      continue;
    }
    ended.push_back({std::move(active_[at]), error_of("ccl: " + group.broken())});
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(at));
    --under_way_;
  }
}

void Engine::announce(std::vector<Ended> ended) {
  const std::lock_guard<std::mutex> lock(handing_over_);
  for (Ended& one : ended) {
    if (resting_) {
      one.task.release();
      continue;
    }
    const c10::intrusive_ptr<CclWork> work = one.task->work;
    if (one.error) {
      one.task.release();  // never freed: oneCCL and the peers may still touch its memory
    } else {
      one.task.reset();
    }
    work->end(one.error);
  }
}

void Engine::rest() {
  const auto deadline = Clock::now() + kPatience;
  while (!abandoned_ && (under_way_ > 0 || CclWork::settling() > 0) && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::lock_guard<std::mutex> lock(handing_over_);
  resting_ = true;
}

// The end of a process that has used oneCCL.

void Engine::watch_exit() {
  static const int registered = on_exit(&Engine::at_exit, this);
  TORCH_CHECK(registered == 0, "on_exit failed");
}

// Runs before oneCCL's destructors, which were registered earlier. They wait until no collective is
// under way, which takes forever if a peer is gone. In that case the process ends here. Python and
// C have done their clean-up by then, except the destructors of libraries loaded before oneCCL.
void Engine::at_exit(int status, void* engine) {
  Engine& self = *static_cast<Engine*>(engine);
  const bool held = self.lock_.try_lock_for(kPatience);  // never released: the background thread stops here
  if (!held || self.abandoned_ || self.under_way_ > 0) {
    std::fflush(nullptr);
    _exit(status);
  }
}

}  // namespace pyg_batchgnn
