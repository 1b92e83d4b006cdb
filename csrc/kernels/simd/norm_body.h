// The loops of norm.h.

// Rows are prefetched although they are read in order. Between the loads and stores of the sums the
// processor does not recognise the order and reads at less than half the speed.
constexpr int64_t kAhead = 2048;
constexpr int64_t kLine = 64;

template <class T>
PYG_BATCHGNN_INLINE void prefetch_row(const T* row, int64_t columns) {
  const char* const ahead = reinterpret_cast<const char*>(row) + kAhead;
  for (int64_t byte = 0; byte < columns * static_cast<int64_t>(sizeof(T)); byte += kLine) {
    __builtin_prefetch(ahead + byte);
  }
}

template <class T>
PYG_BATCHGNN_INLINE Wide<T> relu_backward(Wide<T> z, Wide<T> grad, bool relu) {
  return relu && z <= 0 ? Wide<T>(0) : grad;  // a NaN stays visible
}

template <class T>
void center_sums(const Rows<T>& x, const Wide<T>* __restrict center, Wide<T>* __restrict sum,
                 Wide<T>* __restrict square) {
  std::fill_n(sum, x.columns, Wide<T>(0));
  std::fill_n(square, x.columns, Wide<T>(0));
  for (int64_t row = 0; row < x.rows; ++row) {
    const T* __restrict const values = x.data + row * x.columns;
    prefetch_row(values, x.columns);
    for (int64_t c = 0; c < x.columns; ++c) {
      const Wide<T> d = widen(values[c]) - center[c];
      sum[c] += d;
      square[c] += d * d;
    }
  }
}

// Calls row(relu, begin) for every row, where `relu` is a constant of the compiler.
template <class T, class Row>
PYG_BATCHGNN_INLINE void each_row(const Rows<T>& x, Epilogue epilogue, const Row& row) {
  for (int64_t at = 0; at < x.rows * x.columns; at += x.columns) {
    epilogue == Epilogue::kRelu ? row(std::true_type{}, at) : row(std::false_type{}, at);
  }
}

template <bool Relu, class T>
PYG_BATCHGNN_INLINE void affine_row(const T* __restrict x, int64_t columns, const Affine<Wide<T>>& affine,
                                    T* __restrict y) {
  const Wide<T>*__restrict center = affine.center, *__restrict scale = affine.scale,
                *__restrict shift = affine.shift;
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> z = (widen(x[c]) - center[c]) * scale[c] + shift[c];
    y[c] = narrow<T>(relu_backward<T>(z, z, Relu));
  }
}

template <class T>
void affine_rows(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y) {
  each_row(x, epilogue, [&](auto relu, int64_t at) __attribute__((always_inline)) {
    affine_row<relu()>(x.data + at, x.columns, affine, y + at);
  });
}

template <bool Relu, class T>
PYG_BATCHGNN_INLINE void add_gradient_row(const T* __restrict x, const T* __restrict grad, int64_t columns,
                                          const Affine<Wide<T>>& affine, Wide<T>* __restrict sum,
                                          Wide<T>* __restrict product) {
  const Wide<T>*__restrict center = affine.center, *__restrict scale = affine.scale,
                *__restrict shift = affine.shift;
  prefetch_row(x, columns);
  prefetch_row(grad, columns);
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> d = widen(x[c]) - center[c];
    const Wide<T> g = relu_backward<T>(d * scale[c] + shift[c], widen(grad[c]), Relu);
    sum[c] += g;
    product[c] += g * d;
  }
}

template <class T>
void gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   Wide<T>* sum, Wide<T>* product) {
  std::fill_n(sum, x.columns, Wide<T>(0));
  std::fill_n(product, x.columns, Wide<T>(0));
  each_row(x, epilogue, [&](auto relu, int64_t at) __attribute__((always_inline)) {
    add_gradient_row<relu()>(x.data + at, grad + at, x.columns, affine, sum, product);
  });
}

template <bool Relu, class T>
PYG_BATCHGNN_INLINE void gradient_row(const T* __restrict x, const T* __restrict grad, int64_t columns,
                                      const Affine<Wide<T>>& affine, const Wide<T>* __restrict constant,
                                      const Wide<T>* __restrict slope, T* __restrict out) {
  const Wide<T>*__restrict center = affine.center, *__restrict scale = affine.scale,
                *__restrict shift = affine.shift;
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> d = widen(x[c]) - center[c];
    const Wide<T> g = relu_backward<T>(d * scale[c] + shift[c], widen(grad[c]), Relu);
    out[c] = narrow<T>(g * scale[c] - constant[c] - d * slope[c]);
  }
}

template <class T>
void gradient_rows(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   const Wide<T>* constant, const Wide<T>* slope, T* out) {
  each_row(x, epilogue, [&](auto relu, int64_t at) __attribute__((always_inline)) {
    gradient_row<relu()>(x.data + at, grad + at, x.columns, affine, constant, slope, out + at);
  });
}

// Moments and covariance

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
constexpr NormKernels<T> kNormKernels{&center_sums<T>, &affine_rows<T>, &gradient_sums<T>, &gradient_rows<T>};

template <class T>
constexpr MomentKernels<T> kMomentKernels{&row_mean<T>, &shifted_sums<T>};
