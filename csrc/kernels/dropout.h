// The elements that dropout keeps: a function of (key, node, column) with 16 random bits per
// decision.
//
// The key is a digest of (seed, epoch, minibatch, layer) from pyg_batchgnn/ops/keys.py. The node is
// the original id of the row. So a row is treated alike on every rank and thread.
#pragma once

#include <cstdint>

#include "kernels/random.h"

namespace pyg_batchgnn {

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
