// The loops of embedding_rows.h.

#include "kernels/simd/row_parts_body.h"

// Returns a - b. A factor of -1 is exact.
template <class T>
PYG_BATCHGNN_INLINE typename Lanes<T>::Vector minus(typename Lanes<T>::Vector a,
                                                    typename Lanes<T>::Vector b) {
  return Lanes<T>::add(a, Lanes<T>::multiply(Lanes<T>::fill(T(-1)), b));
}

// Returns the roots of the elements. The types of the branches that are not taken may not exist.
template <class T>
PYG_BATCHGNN_INLINE typename Lanes<T>::Vector root(typename Lanes<T>::Vector a) {
  constexpr bool kSingle = sizeof(T) == sizeof(float);
  if constexpr (sizeof(a) == 64 && kSingle) {
    return _mm512_sqrt_ps(a);
  } else if constexpr (sizeof(a) == 64) {
    return _mm512_sqrt_pd(a);
  } else if constexpr (sizeof(a) == 32 && kSingle) {
    return _mm256_sqrt_ps(a);
  } else if constexpr (sizeof(a) == 32) {
    return _mm256_sqrt_pd(a);
  } else {
    for (int64_t i = 0; i < Lanes<T>::kWidth; ++i) a[i] = static_cast<T>(__builtin_sqrt(a[i]));
    return a;
  }
}

template <class T>
void weigh(const T* gradient, T share, int64_t columns, bool adds, T* sum) {
  using L = Lanes<T>;
  vectors_of<T>(columns, [=](int64_t c, const auto& row) __attribute__((always_inline)) {
    const auto weighed = L::multiply(L::fill(share), row.load(gradient + c));
    row.store(sum + c, adds ? L::add(row.load(sum + c), weighed) : weighed);
  });
}

template <class T>
void sgd(const T* gradient, int64_t columns, T rate, T* weight) {
  using L = Lanes<T>;
  vectors_of<T>(columns, [=](int64_t c, const auto& row) __attribute__((always_inline)) {
    const auto change = L::multiply(L::fill(rate), row.load(gradient + c));
    row.store(weight + c, minus<T>(row.load(weight + c), change));
  });
}

template <class T>
void adagrad(const T* gradient, int64_t columns, T rate, T eps, T* square, T* weight) {
  using L = Lanes<T>;
  vectors_of<T>(columns, [=](int64_t c, const auto& row) __attribute__((always_inline)) {
    const auto g = row.load(gradient + c);
    const auto sum = L::add(row.load(square + c), L::multiply(g, g));
    const auto change = g / L::add(root<T>(sum), L::fill(eps));
    row.store(square + c, sum);
    row.store(weight + c, minus<T>(row.load(weight + c), L::multiply(L::fill(rate), change)));
  });
}

template <class T>
void adam(const T* gradient, int64_t columns, const AdamStep<T>& step, T* mean, T* square, T* weight) {
  using L = Lanes<T>;
  vectors_of<T>(columns, [=](int64_t c, const auto& row) __attribute__((always_inline)) {
    const auto g = row.load(gradient + c);
    auto m = row.load(mean + c), v = row.load(square + c);
    m = L::add(m, L::multiply(L::fill(step.first), minus<T>(g, m)));
    v = L::add(v, L::multiply(L::fill(step.second), minus<T>(L::multiply(g, g), v)));
    const auto change = m / L::add(root<T>(v), L::fill(step.eps));
    row.store(mean + c, m);
    row.store(square + c, v);
    row.store(weight + c, minus<T>(row.load(weight + c), L::multiply(L::fill(step.rate), change)));
  });
}

template <class T>
constexpr EmbeddingKernels<T> kEmbeddingKernels{&weigh<T>, &sgd<T>, &adagrad<T>, &adam<T>};
