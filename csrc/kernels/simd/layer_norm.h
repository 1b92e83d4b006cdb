// The inner loops of layer normalisation, ReLU and dropout: some rows, one thread.
#pragma once

#include <cstdint>

#include "kernels/operand.h"
#include "kernels/random.h"

namespace pyg_batchgnn {

// The numbers that a row is normalised by: (x - center) * scale + shift. The center is the rounded
// mean, the scale the inverse deviation. The shift corrects the rounding of the mean.
template <class A>
struct RowNorm {
  A center, scale, shift;
};

// What follows: ReLU and keyed dropout of the elements. Either may be absent.
struct Activation {
  bool relu;
  const Dropout* dropout;  // or null
  const int64_t* node;     // the ids of rows for dropout; row numbers if null
  uint8_t* mask;           // [rows, ceil(columns / 8)] bits of the elements that pass; null for neither
};

// y = dropout(relu((x - mean) / sqrt(variance + eps) * weight + bias)). Matrices have no gaps.
template <class T>
struct LayerNorm {
  int64_t columns;
  const T* x;
  const Wide<T>* weight;  // [columns]
  const Wide<T>* bias;    // [columns]
  double eps;
  RowNorm<Wide<T>>* norms;  // [rows]
  T* y;
  Activation activation;
};

// Computes the rows [begin, end) of y, with their norms and mask.
template <class T>
void layer_norm_rows(const LayerNorm<T>& job, int64_t begin, int64_t end);

template <class T>
struct LayerNormGrads {
  int64_t columns;
  const T* x;
  const T* grad;          // of y
  const Wide<T>* weight;  // [columns]
  const RowNorm<Wide<T>>* norms;
  const uint8_t* mask;  // or null
  Wide<T> scale;        // of the elements that pass
  T* d_x;
};

// Computes the rows [begin, end) of d_x. Sets sum[c] to the sum of the gradients that pass, and
// product[c] to that of their products with the normalised values, both without dropout's scale.
template <class T>
void layer_norm_grad_rows(const LayerNormGrads<T>& job, int64_t begin, int64_t end, Wide<T>* sum,
                          Wide<T>* product);

// x = dropout(relu(x)) in the rows [begin, end), with their mask.
template <class T>
void activate_rows(T* x, int64_t columns, const Activation& activation, int64_t begin, int64_t end);

// out = grad * scale where the mask has a bit, else 0.
template <class T>
void mask_rows(const T* grad, const uint8_t* mask, int64_t columns, double scale, int64_t begin, int64_t end,
               T* out);

}  // namespace pyg_batchgnn
