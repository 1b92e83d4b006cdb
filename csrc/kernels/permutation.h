// A keyed permutation of [0, n): position i of the shuffled order is computed, never stored.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/random.h"

namespace pyg_batchgnn {

// An unbalanced Feistel network over Z_a x Z_b with a * b >= n; values outside [0, n) follow their
// cycle until they are inside (Black and Rogaway 2002), in less than two steps on average.
class KeyedPermutation {
 public:
  KeyedPermutation(uint64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
    a_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
    while (a_ * a_ < n) ++a_;
    while (a_ > 1 && (a_ - 1) * (a_ - 1) >= n) --a_;
    a_ += a_ & 1;  // over an odd domain every round is an even permutation, so half of all orders could
                   // not occur
    b_ = a_ == 0 ? 0 : (n + a_ - 1) / a_;
    const uint64_t key = fold(epoch_key(seed, epoch), kShuffle);
    for (int round = 0; round < kRounds; ++round)
      round_keys_[round] = fold(key, static_cast<uint64_t>(round));
  }

  uint64_t operator()(uint64_t position) const {
    do position = step(position);
    while (position >= n_);
    return position;
  }

 private:
  static constexpr int kRounds =
      24;  // an even number; n = 6 needs this many to be uniform over all 720 orders
  static constexpr uint64_t kShuffle =
      0x53485546464C45u;  // "SHUFFLE": keeps these keys apart from minibatches'

  uint64_t step(uint64_t value) const {
    uint64_t left = value / b_, right = value % b_;
    for (int round = 0; round < kRounds; round += 2) {
      left = add(left, multiply_high(fold(round_keys_[round], right), a_), a_);
      right = add(right, multiply_high(fold(round_keys_[round + 1], left), b_), b_);
    }
    return left * b_ + right;
  }

  static uint64_t add(uint64_t x, uint64_t y, uint64_t modulus) {
    const uint64_t sum = x + y;
    return sum >= modulus ? sum - modulus : sum;
  }

  uint64_t n_, a_, b_;
  std::array<uint64_t, kRounds> round_keys_;
};

}  // namespace pyg_batchgnn
