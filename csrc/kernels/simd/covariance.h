// Passes over rows and sums for the moments of columns and their covariance, on one thread.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

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
