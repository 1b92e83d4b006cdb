// The inner loops of embedding tables: one row, one thread.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// sum = share * gradient, or sum += share * gradient.
template <class T>
void weigh_gradient(const T* gradient, T share, int64_t columns, bool adds, T* sum);

// weight -= rate * gradient
template <class T>
void sgd_row(const T* gradient, int64_t columns, T rate, T* weight);

// square += gradient^2, then weight -= rate * gradient / (sqrt(square) + eps)
template <class T>
void adagrad_row(const T* gradient, int64_t columns, T rate, T eps, T* square, T* weight);

// The numbers of a step of Adam: `first` and `second` are 1 - beta1 and 1 - beta2, and the rate
// holds the corrections of the bias.
template <class T>
struct AdamStep {
  T rate, eps, first, second;
};

// mean += first * (gradient - mean) and square += second * (gradient^2 - square), then
// weight -= rate * mean / (sqrt(square) + eps)
template <class T>
void adam_row(const T* gradient, int64_t columns, const AdamStep<T>& step, T* mean, T* square, T* weight);

}  // namespace pyg_batchgnn
