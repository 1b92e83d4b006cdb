// The part of an adjacency list that a seed's time allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/prefetch.h"
#include "kernels/sample/search.h"

namespace pyg_batchgnn {

// Places begin .. end - 1 of the order of a relation's edges.
struct Places {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// A search in the times of one list, which ascend. Times are often spread evenly. So the place of a
// time is guessed from the first and the last time, then from the time that lies there. Each step
// reads what the step before has prefetched.
class TimeSearch {
 public:
  TimeSearch(const int64_t* time, Places list) : time_(time + list.begin), count_(list.count()) {}

  static constexpr int64_t kSteps = 3;

  void prefetch(int64_t step, int64_t latest) const {
    if (step == 0) return prefetch_ends();
    if (count_ <= kShortList || !is_between(latest)) return;
    const int64_t guess = first_guess(latest);
    prefetch_near(time_, step == 1 ? guess : second_guess(latest, guess));
  }

  // Returns the number of times that are at most `latest`.
  int64_t count_until(int64_t latest) const {
    if (count_ == 0 || latest < time_[0]) return 0;
    if (latest >= time_[count_ - 1]) return count_;
    if (count_ <= kShortList) return first_above(time_, 0, count_, latest);
    return first_above_near(time_, count_, latest, second_guess(latest, first_guess(latest)));
  }

 private:
  static constexpr int64_t kShortList = 16;  // of two cache lines or three

  void prefetch_ends() const {
    if (count_ == 0) return;
    prefetch_line(time_);
    prefetch_line(time_ + count_ - 1);
    if (count_ <= kShortList) prefetch_line(time_ + count_ / 2);
  }

  bool is_between(int64_t latest) const { return time_[0] <= latest && latest < time_[count_ - 1]; }

  // Differences of times may exceed 2^63.
  static double difference(int64_t later, int64_t earlier) {
    return static_cast<double>(static_cast<uint64_t>(later) - static_cast<uint64_t>(earlier));
  }

  double places_per_time() const {
    return static_cast<double>(count_) / difference(time_[count_ - 1], time_[0]);
  }

  int64_t first_guess(int64_t latest) const {
    return std::min(static_cast<int64_t>(difference(latest, time_[0]) * places_per_time()), count_ - 1);
  }

  int64_t second_guess(int64_t latest, int64_t guess) const {
    const int64_t found = time_[guess];
    const double ahead = found <= latest ? difference(latest, found) : -difference(found, latest);
    return std::clamp<int64_t>(guess + static_cast<int64_t>(ahead * places_per_time()), 0, count_ - 1);
  }

  const int64_t* time_;
  int64_t count_;
};

// Returns the places of a list whose times are at most `latest` and, with a window of w >= 0, at
// least latest - w. `time` ascends within the list.
inline Places allowed_by_time(const int64_t* time, Places list, int64_t latest, int64_t window) {
  const TimeSearch search(time, list);
  const int64_t end = list.begin + search.count_until(latest);
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  if (window < 0 || latest <= kLowest + window) return {list.begin, end};
  return {list.begin + search.count_until(latest - window - 1), end};
}

}  // namespace pyg_batchgnn
