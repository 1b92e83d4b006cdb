// The part of an adjacency list that a seed's time allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/prefetch.h"

namespace pyg_batchgnn {

// Returns the first entry above x among the entries low to high - 1, high - 1 if no other is. A
// binary search without branches, which no processor could predict here.
template <class T>
int64_t first_above(const T* value, int64_t low, int64_t high, T x) {
  const T* first = value + low;
  for (int64_t left = high - low; left > 1;) {
    const int64_t half = left / 2;
    first += half & -static_cast<int64_t>(first[half - 1] <= x);
    left -= half;
  }
  return first - value;
}

// Returns the first of `count` entries above x. The last one is above x. Searches the cache line of
// the guess, then the lines around it in steps that double. The entries of one line are counted:
// that is fewer steps behind each other.
template <class T>
int64_t first_above_near(const T* value, int64_t count, T x, int64_t guess) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const auto in_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(value + guess) / sizeof(T)) % kLine;
  int64_t low = std::max<int64_t>(0, guess - in_line), high = std::min(count, guess - in_line + kLine);
  int64_t step = kLine;
  if (value[low] > x) {
    for (high = low + 1; low > 0 && value[low] > x; step *= 2) {
      high = low + 1;
      low = std::max<int64_t>(0, low - step);
    }
  } else {
    for (; value[high - 1] <= x; step *= 2) {
      low = high;
      high = std::min(count, high + step);
    }
  }
  if (high - low != kLine) return first_above(value, low, high, x);
  int64_t found = low;
  for (int64_t i = 0; i < kLine; ++i) found += value[low + i] <= x ? 1 : 0;
  return found;
}

// Prefetches what a search near a guess most likely reads.
template <class T>
void prefetch_near(const T* value, int64_t guess) {
  constexpr int64_t kAround = 16 / sizeof(T);
  prefetch_line(value + guess - kAround);
  prefetch_line(value + guess + kAround);
}

// Places begin .. end - 1 of the order of a relation's edges.
struct Places {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// A search for the last time of one list that is at most `latest`. Times ascend, and are often
// spread evenly. So the place is guessed from the first and the last time, then from the time that
// lies there. The steps of many searches are taken together: each prefetches what the next reads.
class TimeSearch {
 public:
  TimeSearch() = default;
  TimeSearch(const int64_t* time, Places list, int64_t latest)
      : time_(time + list.begin), count_(list.count()), latest_(latest) {}

  void prefetch_ends() const {
    if (count_ == 0) return;
    prefetch_line(time_);
    prefetch_line(time_ + count_ - 1);
    if (count_ <= kShortList) prefetch_line(time_ + count_ / 2);
  }

  void guess() {
    if (count_ <= kShortList || latest_ < time_[0] || latest_ >= time_[count_ - 1]) return;
    places_per_time_ = static_cast<double>(count_) / difference(time_[count_ - 1], time_[0]);
    guess_ = std::min(static_cast<int64_t>(difference(latest_, time_[0]) * places_per_time_), count_ - 1);
    prefetch_near(time_, guess_);
  }

  void improve() {
    if (places_per_time_ == 0.0) return;
    const int64_t found = time_[guess_];
    const double ahead = found <= latest_ ? difference(latest_, found) : -difference(found, latest_);
    const auto places = static_cast<int64_t>(ahead * places_per_time_);
    guess_ = std::clamp<int64_t>(guess_ + places, 0, count_ - 1);
    prefetch_near(time_, guess_);
  }

  // Returns the number of times that are at most `latest`.
  int64_t count() const {
    if (count_ == 0 || latest_ < time_[0]) return 0;
    if (latest_ >= time_[count_ - 1]) return count_;
    if (count_ <= kShortList) return first_above(time_, 0, count_, latest_);
    return first_above_near(time_, count_, latest_, guess_);
  }

 private:
  static constexpr int64_t kShortList = 16;  // of two cache lines or three

  // Differences of times may exceed 2^63.
  static double difference(int64_t later, int64_t earlier) {
    return static_cast<double>(static_cast<uint64_t>(later) - static_cast<uint64_t>(earlier));
  }

  const int64_t* time_ = nullptr;
  int64_t count_ = 0, latest_ = 0, guess_ = 0;
  double places_per_time_ = 0.0;  // 0: nothing is guessed
};

// The times that a seed at `latest` allows: at most `latest` and, with a window of w >= 0, at least
// latest - w. The calls are those of TimeSearch.
class TimeRange {
 public:
  TimeRange() = default;
  TimeRange(const int64_t* time, Places list, int64_t latest, int64_t window)
      : list_(list), end_(time, list, latest) {
    constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
    if (window >= 0 && latest > kLowest + window) begin_ = TimeSearch(time, list, latest - window - 1);
  }

  void prefetch_ends() const { end_.prefetch_ends(); }
  void guess() {
    end_.guess();
    begin_.guess();
  }
  void improve() {
    end_.improve();
    begin_.improve();
  }
  // Returns the places of the list that are allowed.
  Places places() const { return {list_.begin + begin_.count(), list_.begin + end_.count()}; }

 private:
  Places list_{0, 0};
  TimeSearch end_, begin_;  // nothing is searched for without a window
};

}  // namespace pyg_batchgnn
