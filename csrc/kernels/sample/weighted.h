// Draws in proportion to the weights of edges.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/prefetch.h"
#include "kernels/random.h"
#include "kernels/sample/choose.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/temporal.h"

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

// The memory of a WeightedChooser, kept between minibatches.
struct WeightedScratch {
  std::vector<double> fresh;
  std::vector<int64_t> taken, left;
  NodeMap<uint64_t> table;
};

// Picks from lists of places. Places that are picked are never of weight zero.
class WeightedChooser {
 public:
  WeightedChooser(const EdgeWeights& weights, WeightedScratch& scratch)
      : weights_(weights),
        fresh_(scratch.fresh),
        sorted_(scratch.taken),
        left_(scratch.left),
        taken_(scratch.table) {}

  // Returns the number of positive weights in a range of a target's list.
  int64_t positives(int64_t target, Places places) const {
    if (!weights_.may_have_zeros(target)) return places.count();
    return weights_.positive[places.end] - weights_.positive[places.begin];
  }

  int64_t positives(const int64_t* place, int64_t count) const {
    if (weights_.positive == nullptr) return count;
    return std::count_if(place, place + count, [&](int64_t one) { return weights_.weight[one] > 0; });
  }

  // Draws `picks` places with replacement from a range of a list that begins at `list`, or from
  // places that are listed. There is a positive weight among them.
  // Draws from a range fall at `x` and begin at the guesses in `out`; see `guess`.
  void with_replacement(uint64_t key, int64_t list, Places places, int64_t picks, double* x, int64_t* out) {
    const WeightSums sums = sums_of(key, list, places, picks, x);
    for (int64_t i = 0; i < picks; ++i) out[i] = places.begin + sums.find(x[i], out[i]);
  }

  void with_replacement(uint64_t key, const int64_t* place, int64_t count, int64_t picks, int64_t* out) {
    WordStream words(key);
    const WeightSums sums = fresh_sums(count, [&](int64_t i) { return place[i]; });
    for (int64_t i = 0; i < picks; ++i) out[i] = place[sums.draw(words)];
  }

  // Draws `picks` different places, fewer than there are positive weights. The law is that of
  // successive draws in proportion to the weights of the places that are left.
  void without_replacement(uint64_t key, int64_t list, Places places, int64_t picks, double* x,
                           int64_t* out) {
    const WeightSums sums = sums_of(key, list, places, picks, x);
    WordStream words(key);
    words.skip(picks);  // those of x
    taken_.begin(picks);
    const int64_t got = draw_near(words, sums, places.begin, picks, x, out);
    if (got < picks)
      finish(words, places.count(), [&](int64_t i) { return places.begin + i; }, got, picks, out);
  }

  void without_replacement(uint64_t key, const int64_t* place, int64_t count, int64_t picks, int64_t* out) {
    WordStream words(key);
    const WeightSums sums = fresh_sums(count, [&](int64_t i) { return place[i]; });
    taken_.begin(picks);
    const int64_t got = draw_new(words, sums, [&](int64_t i) { return place[i]; }, 0, picks, out);
    if (got < picks) finish(words, count, [&](int64_t i) { return place[i]; }, got, picks, out);
  }

  // Prefetches what every draw from a range of a list that begins at `list` reads.
  void touch(int64_t list, Places places) const {
    if (places.begin != list) prefetch_line(&weights_.sum[places.begin - 1]);
    prefetch_line(&weights_.sum[places.end - 1]);
  }

  // Draws where among the sums `picks` draws from the range fall, if none of them is skipped, and
  // guesses which entries these are. `list` is the begin of the range's list.
  void guess(uint64_t key, int64_t list, Places places, int64_t picks, double* x, int64_t* out) const {
    stored_sums(list, places).guess(WordStream(key), picks, x, out);
  }

  // Improves these guesses.
  void improve(int64_t list, Places places, int64_t picks, const double* x, int64_t* out) const {
    stored_sums(list, places).improve(picks, x, out);
  }

  // Writes all places of positive weight, in order. There are `positives` of them.
  void all_positive(Places places, int64_t positives, int64_t* out) const {
    if (positives == places.count()) return std::iota(out, out + positives, places.begin);
    for (int64_t place = places.begin; place < places.end; ++place) {
      if (weights_.weight[place] > 0) *out++ = place;
    }
  }

  void all_positive(const int64_t* place, int64_t count, int64_t* out) const {
    std::copy_if(place, place + count, out, [&](int64_t one) { return weights_.weight[one] > 0; });
  }

 private:
  // Differences of stored sums keep at least 32 of 53 bits, else the range is summed anew.
  static constexpr double kLeastShare = 0x1p-20;

  double before(int64_t list, Places places) const {
    return places.begin == list ? 0.0 : weights_.sum[places.begin - 1];
  }

  WeightSums stored_sums(int64_t list, Places places) const {
    return {weights_.sum + places.begin, places.count(), before(list, places)};
  }

  // Returns the sums to draw from. Where they are not the stored ones, `x` is written anew.
  WeightSums sums_of(uint64_t key, int64_t list, Places places, int64_t picks, double* x) {
    const double lower = before(list, places), total = weights_.sum[places.end - 1];
    if (total - lower > total * kLeastShare) return stored_sums(list, places);
    const WeightSums sums = fresh_sums(places.count(), [&](int64_t i) { return places.begin + i; });
    sums.places(WordStream(key), picks, x);
    return sums;
  }

  template <class PlaceOf>
  WeightSums fresh_sums(int64_t count, const PlaceOf& place_of) {
    fresh_.resize(static_cast<size_t>(count));
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) fresh_[static_cast<size_t>(i)] = sum += weights_.weight[place_of(i)];
    return {fresh_.data(), count, 0.0};
  }

  // Makes the first draws of draw_new, which fall at `x`, near the guesses in `out`. Each is read
  // before a pick is written there. Then goes on as draw_new does.
  int64_t draw_near(WordStream& words, const WeightSums& sums, int64_t begin, int64_t picks, const double* x,
                    int64_t* out) {
    int64_t got = 0;
    for (int64_t i = 0; i < picks; ++i) got = take(begin + sums.find(x[i], out[i]), got, out);
    for (int64_t left = 3 * picks + 16; left > 0 && got < picks; --left) {
      got = take(begin + sums.draw(words), got, out);
    }
    return got;
  }

  // Returns the number of picks with `place`, which is skipped if it is taken already.
  int64_t take(int64_t place, int64_t got, int64_t* out) {
    const bool taken = taken_.contains(out, got, place);
    out[got] = place;
    return got + (taken ? 0 : 1);
  }

  // Draws with replacement and skips what is taken already, at most 4 k + 16 times for the k picks
  // that are missing. Returns the number of picks so far.
  template <class PlaceOf>
  int64_t draw_new(WordStream& words, const WeightSums& sums, const PlaceOf& place_of, int64_t got,
                   int64_t picks, int64_t* out) {
    for (int64_t left = 4 * (picks - got) + 16; left > 0 && got < picks; --left) {
      got = take(place_of(sums.draw(words)), got, out);
    }
    return got;
  }

  // Sums what is not taken anew and draws from that, until all picks are made.
  template <class PlaceOf>
  void finish(WordStream& words, int64_t count, const PlaceOf& place_of, int64_t got, int64_t picks,
              int64_t* out) {
    while (got < picks) {
      sorted_.assign(out, out + got);
      std::sort(sorted_.begin(), sorted_.end());
      left_.clear();
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = place_of(i);
        if (!std::binary_search(sorted_.begin(), sorted_.end(), place)) left_.push_back(place);
      }
      const auto left = static_cast<int64_t>(left_.size());
      const auto place_left = [&](int64_t i) { return left_[static_cast<size_t>(i)]; };
      got = draw_new(words, fresh_sums(left, place_left), place_left, got, picks, out);
    }
  }

  const EdgeWeights weights_;
  std::vector<double>& fresh_;
  std::vector<int64_t>&sorted_, &left_;
  TakenPlaces taken_;
};

}  // namespace pyg_batchgnn
