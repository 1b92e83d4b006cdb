// Draws from the prefix sums of weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/prefetch.h"
#include "kernels/random.h"
#include "kernels/sample/search.h"

namespace pyg_batchgnn {

// Inclusive sums of weights, and the sum that lies before them.
class WeightSums {
 public:
  WeightSums(const double* sum, int64_t count, double before) : sum_(sum), count_(count), before_(before) {}

  // Draws an entry with one word: the first whose sum exceeds before + u * (total - before).
  int64_t draw(WordStream& words) const {
    const double u = uniform(words);
    return find(place_of(u), guess(u));
  }

  // Returns the first entry whose sum exceeds x. The search begins at a guess.
  int64_t find(double x, int64_t guess) const {
    if (count_ <= kShortList) return first_above(sum_, 0, count_, x);
    // Most sums lie near the straight line to the total, so few cache lines are read from there on.
    return first_above_near(sum_, count_, x, guess);
  }

  // Writes where the first `draws` draws with these words fall among the sums.
  void places(WordStream words, int64_t draws, double* x) const {
    for (int64_t i = 0; i < draws; ++i) x[i] = place_of(uniform(words));
  }

  // Writes the same, guesses the entries of these draws and prefetches them.
  void guess(WordStream words, int64_t draws, double* x, int64_t* out) const {
    if (count_ <= kShortList) {
      prefetch_line(&sum_[0]);
      prefetch_line(&sum_[count_ / 2]);
      std::fill(out, out + draws, 0);
      return places(words, draws, x);
    }
    for (int64_t i = 0; i < draws; ++i) {
      const double u = uniform(words);
      x[i] = place_of(u);
      out[i] = guess(u);
      prefetch_line(sum_ + out[i]);
    }
  }

  // Improves the guesses by what lies there, and prefetches what lies around them.
  void improve(int64_t draws, const double* x, int64_t* out) const {
    if (count_ <= kShortList || sum_[count_ - 1] <= before_) return;
    const double weight = sum_[count_ - 1] - before_;
    for (int64_t i = 0; i < draws; ++i) {
      const double share = (x[i] - sum_[out[i]]) / weight;  // within -1 and 1
      const auto ahead = static_cast<int64_t>(share * static_cast<double>(count_) + 0.5);
      out[i] = std::clamp<int64_t>(out[i] + ahead, 0, count_ - 1);
      prefetch_near(sum_, out[i]);
    }
  }

 private:
  static constexpr int64_t kShortList = 16;  // of two cache lines or three

  // Uniform on [0, 1).
  static double uniform(WordStream& words) { return static_cast<double>(words.next() >> 11) * 0x1p-53; }

  // Where a draw falls among the sums.
  double place_of(double u) const {
    const double total = sum_[count_ - 1];
    // One rounding, on every processor.
    const double x = before_ == 0.0 ? u * total : std::fma(u, total - before_, before_);
    return x < total ? x : std::nextafter(total, 0.0);  // rounding may reach the total, which no sum exceeds
  }

  // The entry that a draw would give if all weights were equal.
  int64_t guess(double u) const {
    return std::min(static_cast<int64_t>(u * static_cast<double>(count_)), count_ - 1);
  }

  const double* sum_;
  int64_t count_;
  double before_;
};

}  // namespace pyg_batchgnn
