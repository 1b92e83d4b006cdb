// The pauses between two polls: short while an answer is near, longer while a peer is far behind.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace pyg_batchgnn {

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

}  // namespace pyg_batchgnn
