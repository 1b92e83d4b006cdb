#include "kernels/simd/covariance.h"

#include <algorithm>

#include "kernels/simd/dispatch.h"

namespace pyg_batchgnn {
namespace {

#define PYG_BATCHGNN_BODY __attribute__((always_inline)) inline

template <class T>
PYG_BATCHGNN_BODY void row_mean_body(const StridedRows<T>& x, T* __restrict mean) {
  const T* __restrict const first = x.data;
  std::fill_n(mean, x.columns, T{0});
  int64_t i = 0;
  // Four rows at a time: the sums go through memory.
  for (; i + 4 <= x.rows; i += 4) {
    const T* __restrict const a = x.row(i), * __restrict const b = x.row(i + 1);
    const T* __restrict const d = x.row(i + 2), * __restrict const e = x.row(i + 3);
    for (int64_t c = 0; c < x.columns; ++c) {
      mean[c] += ((a[c] - first[c]) + (b[c] - first[c])) + ((d[c] - first[c]) + (e[c] - first[c]));
    }
  }
  for (; i < x.rows; ++i) {
    const T* __restrict const row = x.row(i);
    for (int64_t c = 0; c < x.columns; ++c) mean[c] += row[c] - first[c];
  }
  const T inverse = T{1} / static_cast<T>(x.rows);
  for (int64_t c = 0; c < x.columns; ++c) mean[c] = first[c] + mean[c] * inverse;
}

template <class T>
PYG_BATCHGNN_BODY void center_rows_body(const StridedRows<T>& x, const T* __restrict mean, T* __restrict out,
                                        int64_t stride) {
  for (int64_t i = 0; i < x.rows; ++i, out += stride) {
    const T* __restrict const row = x.row(i);
    for (int64_t c = 0; c < x.columns; ++c) out[c] = row[c] - mean[c];
  }
}

template <class T>
PYG_BATCHGNN_BODY void shifted_sums_body(const StridedRows<T>& x, const T* __restrict shift,
                                         const T* __restrict center, T* __restrict sum,
                                         T* __restrict square) {
  std::fill_n(sum, x.columns, T{0});
  std::fill_n(square, x.columns, T{0});
  int64_t i = 0;
  for (; i + 4 <= x.rows; i += 4) {
    const T* __restrict const row = x.row(i);
    const T* __restrict const second = x.row(i + 1);
    const T* __restrict const third = x.row(i + 2);
    const T* __restrict const fourth = x.row(i + 3);
    for (int64_t c = 0; c < x.columns; ++c) {
      const T a = row[c] + shift[c] - center[c], b = second[c] + shift[c] - center[c];
      const T d = third[c] + shift[c] - center[c], e = fourth[c] + shift[c] - center[c];
      sum[c] += (a + b) + (d + e);
      square[c] += (a * a + b * b) + (d * d + e * e);
    }
  }
  for (; i < x.rows; ++i) {
    const T* __restrict const row = x.row(i);
    for (int64_t c = 0; c < x.columns; ++c) {
      const T d = row[c] + shift[c] - center[c];
      sum[c] += d;
      square[c] += d * d;
    }
  }
}

template <class T>
PYG_BATCHGNN_BODY void add_products_body(const T* __restrict from, double by, const double* __restrict gap,
                                         int64_t count, double* __restrict to) {
  for (int64_t c = 0; c < count; ++c) to[c] += static_cast<double>(from[c]) + by * gap[c];
}

}  // namespace

// The variants of all loops for one type, and the templates that stand for them.
#define PYG_BATCHGNN_COVARIANCE(T, suffix)                                                             \
  namespace {                                                                                          \
  PYG_BATCHGNN_VARIANTS(void, row_mean_##suffix, row_mean_body, (const StridedRows<T>& x, T* mean),    \
                        (x, mean))                                                                     \
  PYG_BATCHGNN_VARIANTS(void, center_rows_##suffix, center_rows_body,                                  \
                        (const StridedRows<T>& x, const T* mean, T* out, int64_t stride),              \
                        (x, mean, out, stride))                                                        \
  PYG_BATCHGNN_VARIANTS(void, shifted_sums_##suffix, shifted_sums_body,                                \
                        (const StridedRows<T>& x, const T* shift, const T* center, T* sum, T* square), \
                        (x, shift, center, sum, square))                                               \
  PYG_BATCHGNN_VARIANTS(void, add_products_##suffix, add_products_body,                                \
                        (const T* from, double by, const double* gap, int64_t count, double* to),      \
                        (from, by, gap, count, to))                                                    \
  }                                                                                                    \
  template <>                                                                                          \
  void row_mean(const StridedRows<T>& x, T* mean) {                                                    \
    row_mean_##suffix(x, mean);                                                                        \
  }                                                                                                    \
  template <>                                                                                          \
  void center_rows(const StridedRows<T>& x, const T* mean, T* out, int64_t stride) {                   \
    center_rows_##suffix(x, mean, out, stride);                                                        \
  }                                                                                                    \
  template <>                                                                                          \
  void shifted_sums(const StridedRows<T>& x, const T* shift, const T* center, T* sum, T* square) {     \
    shifted_sums_##suffix(x, shift, center, sum, square);                                              \
  }                                                                                                    \
  template <>                                                                                          \
  void add_products(const T* from, double by, const double* gap, int64_t count, double* to) {          \
    add_products_##suffix(from, by, gap, count, to);                                                   \
  }

PYG_BATCHGNN_COVARIANCE(float, f32)
PYG_BATCHGNN_COVARIANCE(double, f64)

}  // namespace pyg_batchgnn
