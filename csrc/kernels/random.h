// The counter-based generator behind every random choice (docs/concepts/sampling-contract.md gives
// the definition).
//
// A choice is a function of (seed, epoch, minibatch key, hop, node, draw). There is no state to
// share between threads or ranks, and any choice can be repeated from its key.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

// The SplitMix64 finaliser (Steele, Lea and Flood 2014): a bijection in which every output bit
// depends on every input bit.
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
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

inline uint64_t hop_key(uint64_t seed, uint64_t epoch, uint64_t minibatch, uint64_t hop) {
  return fold(fold(epoch_key(seed, epoch), minibatch), hop);
}

}  // namespace pyg_batchgnn
