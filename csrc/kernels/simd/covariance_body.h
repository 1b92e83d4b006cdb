// The loops of covariance.h.

template <class T>
void row_mean(const StridedRows<T>& x, T* __restrict mean) {
  const T* __restrict const first = x.data;
  std::fill_n(mean, x.columns, T{0});
  int64_t i = 0;
  // Four rows at a time, because the sums are in memory.
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
void center_rows(const StridedRows<T>& x, const T* __restrict mean, T* __restrict out, int64_t stride) {
  for (int64_t i = 0; i < x.rows; ++i, out += stride) {
    const T* __restrict const row = x.row(i);
    for (int64_t c = 0; c < x.columns; ++c) out[c] = row[c] - mean[c];
  }
}

template <class T>
void shifted_sums(const StridedRows<T>& x, const T* __restrict shift, const T* __restrict center,
                  T* __restrict sum, T* __restrict square) {
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
void add_products(const T* __restrict from, double by, const double* __restrict gap, int64_t count,
                  double* __restrict to) {
  for (int64_t c = 0; c < count; ++c) to[c] += static_cast<double>(from[c]) + by * gap[c];
}
