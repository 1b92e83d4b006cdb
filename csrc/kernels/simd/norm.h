// The inner loops of batch normalisation, activation and moments of columns: some rows, one thread.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Rows of a row-major matrix without gaps.
template <class T>
struct Rows {
  const T* data;
  int64_t rows, columns;
};

// z = (x - center) * scale + shift, with one value of each per column. The subtraction comes first,
// so that a deviation that is small compared to the mean keeps its digits.
template <class A>
struct Affine {
  const A* center;
  const A* scale;
  const A* shift;
};

enum class Epilogue : bool { kNone, kRelu };

// sum[c] = sum of x - center, square[c] = sum of (x - center)^2.
template <class T>
void center_sums(const Rows<T>& x, const Wide<T>* center, Wide<T>* sum, Wide<T>* square);

// y = z, or relu(z).
template <class T>
void affine_rows(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y);

// With g = grad, zero where a ReLU of z is: sum[c] = sum of g, product[c] = sum of g * (x -
// center).
template <class T>
void gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   Wide<T>* sum, Wide<T>* product);

// out = g * scale - constant - (x - center) * slope.
template <class T>
void gradient_rows(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   const Wide<T>* constant, const Wide<T>* slope, T* out);

// ReLU and keyed dropout

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

// Moments and covariance

// Rows of a matrix, `stride` elements apart.
template <class T>
struct StridedRows {
  const T* data;
  int64_t stride, rows, columns;

  const T* row(int64_t i) const { return data + i * stride; }
};

// Computes the mean of at least one row, summed about the first row. The mean of a column of equal
// numbers is exact.
template <class T>
void row_mean(const StridedRows<T>& x, T* mean);

// out[i, :] = x[i, :] - mean; rows of `out` lie `stride` apart.
template <class T>
void center_rows(const StridedRows<T>& x, const T* mean, T* out, int64_t stride);

// With d = (x[i, :] + shift) - center: sum[c] = sum of d, square[c] = sum of d * d.
template <class T>
void shifted_sums(const StridedRows<T>& x, const T* shift, const T* center, T* sum, T* square);

// to[c] += from[c] + by * gap[c]
template <class T>
void add_products(const T* from, double by, const double* gap, int64_t count, double* to);

}  // namespace pyg_batchgnn
