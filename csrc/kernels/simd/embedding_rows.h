// The inner loops of embedding tables: one row, one thread.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The numbers of a step of Adam: `first` and `second` are 1 - beta1 and 1 - beta2, and the rate
// holds the corrections of the bias.
template <class T>
struct AdamStep {
  T rate, eps, first, second;
};

template <class T>
struct EmbeddingKernels {
  // sum = share * gradient, or sum += share * gradient.
  void (*weigh)(const T* gradient, T share, int64_t columns, bool adds, T* sum);
  // weight -= rate * gradient
  void (*sgd)(const T* gradient, int64_t columns, T rate, T* weight);
  // square += gradient^2, then weight -= rate * gradient / (sqrt(square) + eps)
  void (*adagrad)(const T* gradient, int64_t columns, T rate, T eps, T* square, T* weight);
  // mean += first * (gradient - mean) and square += second * (gradient^2 - square), then
  // weight -= rate * mean / (sqrt(square) + eps)
  void (*adam)(const T* gradient, int64_t columns, const AdamStep<T>& step, T* mean, T* square, T* weight);
};

// T: float or double.
template <class T>
const EmbeddingKernels<T>& embedding_kernels();

}  // namespace pyg_batchgnn
