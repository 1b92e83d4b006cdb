// The inner loops of ReLU and keyed dropout: one row, one thread.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"

namespace pyg_batchgnn {

// Room for the decisions of one row: 16 random bits (`draws`) and one byte (`pass`) per element.
// Both are written in whole words, see `padded_columns`.
struct RowScratch {
  uint16_t* draws;
  uint8_t* pass;
};

inline int64_t padded_columns(int64_t columns) { return (columns + 63) / 64 * 64; }

// Writes the random bits of `dropout_word` for columns 0, 1, ...
void dropout_draws(uint64_t row_key, int64_t columns, uint16_t* draws);

// pass[c] = 1 where draws[c] < kept_levels, else 0.
void dropout_passes(const uint16_t* draws, uint32_t kept_levels, int64_t columns, uint8_t* pass);

// pass[c] = 0 where x[c] <= 0; a NaN passes.
template <class T>
void relu_passes(const T* x, int64_t columns, uint8_t* pass);

// y[c] = x[c] * scale where pass[c], else 0. `y` may be `x`.
template <class T>
void select_scaled(const T* x, const uint8_t* pass, Wide<T> scale, int64_t columns, T* y);

// Convert between one byte and one bit per column: bit c % 8 of byte c / 8. `pass` has
// padded_columns(columns) bytes.
void pack_bits(const uint8_t* pass, int64_t columns, uint8_t* bits);
void unpack_bits(const uint8_t* bits, int64_t columns, uint8_t* pass);

}  // namespace pyg_batchgnn
