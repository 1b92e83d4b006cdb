#include "kernels/simd/norm.h"

#include <algorithm>

#include "kernels/simd/dispatch.h"

namespace pyg_batchgnn {
namespace {

#define PYG_BATCHGNN_BODY __attribute__((always_inline)) inline

constexpr int64_t kRowsAtOnce = 8;  // fewer passes over the sums, and few enough streams to be prefetched

template <class T>
PYG_BATCHGNN_BODY Wide<T> gated(Wide<T> z, Wide<T> grad, bool relu) {
  return relu && z <= 0 ? Wide<T>(0) : grad;  // not of a NaN: what is not a number stays visible
}

// Asks for what lies `kAhead` bytes behind: several rows at once are too many streams for the processor to see.
constexpr int64_t kAhead = 8192;
constexpr int64_t kLine = 64;

template <class T>
PYG_BATCHGNN_BODY void prefetch(const T* begin, int64_t count) {
  const auto* bytes = reinterpret_cast<const char*>(begin) + kAhead;
  for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(T)); byte += kLine) {
    __builtin_prefetch(bytes + byte);
  }
}

// The sums of `Lines` rows join those of the rows before.
template <int Lines, class T>
PYG_BATCHGNN_BODY void add_lines(const T* x, int64_t columns, const Wide<T>* __restrict center,
                                 Wide<T>* __restrict sum, Wide<T>* __restrict square) {
  for (int64_t c = 0; c < columns; ++c) {
    Wide<T> s = 0, q = 0;
    for (int line = 0; line < Lines; ++line) {
      const Wide<T> d = widen(x[line * columns + c]) - center[c];
      s += d;
      q += d * d;
    }
    sum[c] += s;
    square[c] += q;
  }
}

template <class T>
PYG_BATCHGNN_BODY void center_sums_body(const Rows<T>& x, const Wide<T>* center, Wide<T>* sum,
                                        Wide<T>* square) {
  std::fill_n(sum, x.columns, Wide<T>(0));
  std::fill_n(square, x.columns, Wide<T>(0));
  int64_t row = 0;
  for (; row + kRowsAtOnce <= x.rows; row += kRowsAtOnce) {
    prefetch(x.data + row * x.columns, kRowsAtOnce * x.columns);
    add_lines<kRowsAtOnce>(x.data + row * x.columns, x.columns, center, sum, square);
  }
  for (; row < x.rows; ++row) add_lines<1>(x.data + row * x.columns, x.columns, center, sum, square);
}

template <bool Relu, class T>
PYG_BATCHGNN_BODY void affine_line(const T* x, int64_t columns, const Affine<Wide<T>>& affine,
                                   T* __restrict y) {
  const Wide<T>*__restrict center = affine.center, *__restrict scale = affine.scale,
                *__restrict shift = affine.shift;
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> z = (widen(x[c]) - center[c]) * scale[c] + shift[c];
    y[c] = narrow<T>(gated<T>(z, z, Relu));
  }
}

template <class T>
PYG_BATCHGNN_BODY void affine_rows_body(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue,
                                        T* y) {
  for (int64_t at = 0; at < x.rows * x.columns; at += x.columns) {
    if (epilogue == Epilogue::kRelu) {
      affine_line<true>(x.data + at, x.columns, affine, y + at);
    } else {
      affine_line<false>(x.data + at, x.columns, affine, y + at);
    }
  }
}

template <int Lines, bool Relu, class T>
PYG_BATCHGNN_BODY void add_gradient_lines(const T* x, const T* grad, int64_t columns,
                                          const Affine<Wide<T>>& affine, Wide<T>* __restrict sum,
                                          Wide<T>* __restrict product) {
  const Wide<T>*__restrict center = affine.center, *__restrict scale = affine.scale,
                *__restrict shift = affine.shift;
  for (int64_t c = 0; c < columns; ++c) {
    Wide<T> s = 0, p = 0;
    for (int line = 0; line < Lines; ++line) {
      const Wide<T> d = widen(x[line * columns + c]) - center[c];
      const Wide<T> g = gated<T>(d * scale[c] + shift[c], widen(grad[line * columns + c]), Relu);
      s += g;
      p += g * d;
    }
    sum[c] += s;
    product[c] += p;
  }
}

template <bool Relu, class T>
PYG_BATCHGNN_BODY void add_gradient_rows(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine,
                                         Wide<T>* sum, Wide<T>* product) {
  constexpr int64_t kLines = kRowsAtOnce / 2;  // of two matrices
  int64_t row = 0;
  for (; row + kLines <= x.rows; row += kLines) {
    const int64_t at = row * x.columns;
    prefetch(x.data + at, kLines * x.columns);
    prefetch(grad + at, kLines * x.columns);
    add_gradient_lines<kLines, Relu>(x.data + at, grad + at, x.columns, affine, sum, product);
  }
  for (; row < x.rows; ++row) {
    const int64_t at = row * x.columns;
    add_gradient_lines<1, Relu>(x.data + at, grad + at, x.columns, affine, sum, product);
  }
}

template <class T>
PYG_BATCHGNN_BODY void gradient_sums_body(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine,
                                          Epilogue epilogue, Wide<T>* sum, Wide<T>* product) {
  std::fill_n(sum, x.columns, Wide<T>(0));
  std::fill_n(product, x.columns, Wide<T>(0));
  if (epilogue == Epilogue::kRelu) {
    add_gradient_rows<true>(x, grad, affine, sum, product);
  } else {
    add_gradient_rows<false>(x, grad, affine, sum, product);
  }
}

template <bool Relu, class T>
PYG_BATCHGNN_BODY void gradient_line(const T* x, const T* grad, int64_t columns,
                                     const Affine<Wide<T>>& affine, const Wide<T>* __restrict constant,
                                     const Wide<T>* __restrict slope, T* __restrict out) {
  const Wide<T>*__restrict center = affine.center, *__restrict scale = affine.scale,
                *__restrict shift = affine.shift;
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> d = widen(x[c]) - center[c];
    const Wide<T> g = gated<T>(d * scale[c] + shift[c], widen(grad[c]), Relu);
    out[c] = narrow<T>(g * scale[c] - constant[c] - d * slope[c]);
  }
}

template <class T>
PYG_BATCHGNN_BODY void gradient_rows_body(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine,
                                          Epilogue epilogue, const Wide<T>* constant, const Wide<T>* slope,
                                          T* out) {
  for (int64_t at = 0; at < x.rows * x.columns; at += x.columns) {
    if (epilogue == Epilogue::kRelu) {
      gradient_line<true>(x.data + at, grad + at, x.columns, affine, constant, slope, out + at);
    } else {
      gradient_line<false>(x.data + at, grad + at, x.columns, affine, constant, slope, out + at);
    }
  }
}

}  // namespace

// The variants of all loops for one type, and the templates that stand for them.
#define PYG_BATCHGNN_NORM(T, suffix)                                                                        \
  namespace {                                                                                               \
  PYG_BATCHGNN_VARIANTS(void, center_sums_##suffix, center_sums_body,                                       \
                        (const Rows<T>& x, const Wide<T>* center, Wide<T>* sum, Wide<T>* square),           \
                        (x, center, sum, square))                                                           \
  PYG_BATCHGNN_VARIANTS(void, affine_rows_##suffix, affine_rows_body,                                       \
                        (const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y),         \
                        (x, affine, epilogue, y))                                                           \
  PYG_BATCHGNN_VARIANTS(void, gradient_sums_##suffix, gradient_sums_body,                                   \
                        (const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue, \
                         Wide<T>* sum, Wide<T>* product),                                                   \
                        (x, grad, affine, epilogue, sum, product))                                          \
  PYG_BATCHGNN_VARIANTS(void, gradient_rows_##suffix, gradient_rows_body,                                   \
                        (const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue, \
                         const Wide<T>* constant, const Wide<T>* slope, T* out),                            \
                        (x, grad, affine, epilogue, constant, slope, out))                                  \
  }                                                                                                         \
  template <>                                                                                               \
  void center_sums(const Rows<T>& x, const Wide<T>* center, Wide<T>* sum, Wide<T>* square) {                \
    center_sums_##suffix(x, center, sum, square);                                                           \
  }                                                                                                         \
  template <>                                                                                               \
  void affine_rows(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y) {              \
    affine_rows_##suffix(x, affine, epilogue, y);                                                           \
  }                                                                                                         \
  template <>                                                                                               \
  void gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,     \
                     Wide<T>* sum, Wide<T>* product) {                                                      \
    gradient_sums_##suffix(x, grad, affine, epilogue, sum, product);                                        \
  }                                                                                                         \
  template <>                                                                                               \
  void gradient_rows(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,     \
                     const Wide<T>* constant, const Wide<T>* slope, T* out) {                               \
    gradient_rows_##suffix(x, grad, affine, epilogue, constant, slope, out);                                \
  }

PYG_BATCHGNN_NORM(float, f32)
PYG_BATCHGNN_NORM(double, f64)
PYG_BATCHGNN_NORM(Bfloat16, bf16)

}  // namespace pyg_batchgnn
