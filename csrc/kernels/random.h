// The counter-based generator of every random choice; see docs/concepts/sampling-contract.md.
//
// A choice is a function of (seed, epoch, minibatch key, hop, node, draw). There is no state to
// share between threads or ranks, and any choice can be repeated from its key.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace pyg_batchgnn {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;
constexpr uint64_t kMixFirst = 0xBF58476D1CE4E5B9u, kMixSecond = 0x94D049BB133111EBu;

// The SplitMix64 finaliser (Steele, Lea and Flood 2014), a bijection that mixes all bits.
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * kMixFirst;
  z = (z ^ (z >> 27)) * kMixSecond;
  return z ^ (z >> 31);
}

// Adds one component to a key. For a fixed key this is a bijection of `value`, so different
// components never collide.
inline uint64_t fold(uint64_t key, uint64_t value) { return mix((key ^ value) + kGamma); }

inline uint64_t multiply_high(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

// The words of one key, in order.
class WordStream {
 public:
  explicit WordStream(uint64_t key) : counter_(key) {}

  void skip(int64_t n) { counter_ += kGamma * static_cast<uint64_t>(n); }
  uint64_t next() { return mix(counter_ += kGamma); }

  // Uniform on [0, n), without bias: Lemire's multiplication with rejection (2019). The rejecting
  // loop is entered with probability n / 2^64.
  uint64_t bounded(uint64_t n) {
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * n;
    if (static_cast<uint64_t>(product) < n) [[unlikely]] {
      const uint64_t threshold = (0 - n) % n;
      while (static_cast<uint64_t>(product) < threshold) product = static_cast<unsigned __int128>(next()) * n;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  uint64_t counter_;
};

// Returns the digest of the seed nodes of a minibatch in their order.
inline uint64_t minibatch_key(const int64_t* seeds, int64_t count) {
  uint64_t key = 0;
  for (int64_t i = 0; i < count; ++i) key = fold(key, static_cast<uint64_t>(seeds[i]));
  return fold(key, static_cast<uint64_t>(count));
}

inline uint64_t epoch_key(uint64_t seed, uint64_t epoch) { return fold(fold(0, seed), epoch); }

// The bytes of "labor": keeps the keys of sources apart from those of targets.
constexpr uint64_t kLabor = 0x726F62616C;

// Returns the word that the destinations of a source share: of those of a key, the one at its id.
inline uint64_t source_word(uint64_t key, int64_t source) {
  return mix(key + static_cast<uint64_t>(source + 1) * kGamma);
}

// A keyed permutation of [0, n): position i of the shuffled order is computed, never stored.

// An unbalanced Feistel network over Z_a x Z_b with a * b >= n; values outside [0, n) follow their
// cycle until they are inside (Black and Rogaway 2002), in less than two steps on average.
class KeyedPermutation {
 public:
  KeyedPermutation(uint64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
    a_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
    while (a_ * a_ < n) ++a_;
    while (a_ > 1 && (a_ - 1) * (a_ - 1) >= n) --a_;
    a_ += a_ & 1;  // over an odd domain every round is even, and half of all orders could not occur
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

// The elements that dropout keeps: a function of (key, node, column), by 16 random bits each.
//
// The key is a digest of (seed, epoch, minibatch, layer) from pyg_batchgnn/ops/keys.py. The node is
// the original id of the row. So a row is treated alike on every rank and thread.

constexpr int64_t kDropoutLevels = 1 << 16;
constexpr int64_t kDropoutColumnsPerWord = 4;

// The probability of keeping is rounded to a multiple of 2^-16. The scale is the inverse of the
// rounded probability, so that expectations are exact.
struct Dropout {
  uint64_t key;
  uint32_t kept_levels;  // of kDropoutLevels

  Dropout(uint64_t layer_key, double drop)
      : key(layer_key), kept_levels(static_cast<uint32_t>((1.0 - drop) * kDropoutLevels + 0.5)) {}

  double scale() const { return static_cast<double>(kDropoutLevels) / kept_levels; }
};

inline uint64_t dropout_row_key(uint64_t key, int64_t node) { return fold(key, static_cast<uint64_t>(node)); }

// Returns 16 bits for each of the columns 4 * word to 4 * word + 3, the lowest bits first.
inline uint64_t dropout_word(uint64_t row_key, int64_t word) {
  return mix(row_key + static_cast<uint64_t>(word + 1) * kGamma);
}

inline bool dropout_keeps(const Dropout& dropout, uint64_t row_key, int64_t column) {
  const uint64_t word = dropout_word(row_key, column / kDropoutColumnsPerWord);
  const uint64_t bits = (word >> (16 * (column % kDropoutColumnsPerWord))) & (kDropoutLevels - 1);
  return bits < dropout.kept_levels;
}

}  // namespace pyg_batchgnn
