// ReLU and keyed dropout in place, and what a mask of bits does to a gradient.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/dropout.h"

namespace pyg_batchgnn {

// What happens to a matrix's elements. Either part may be absent.
struct Activation {
  bool relu;
  const Dropout* dropout;
  const int64_t* node;  // [rows], what a row's dropout is keyed by; row numbers where null
};

struct MatrixSize {
  int64_t rows, columns;
  int64_t mask_bytes() const { return (columns + 7) / 8; }  // a row
};

// x = dropout(relu(x)); mask [rows, mask_bytes], bit c % 8 of byte c / 8: whether column c passes.
template <class T>
void activate(T* x, MatrixSize size, const Activation& activation, int64_t threads, uint8_t* mask);

// out = grad * scale where the mask has a bit, else 0.
template <class T>
void mask_gradient(const T* grad, const uint8_t* mask, MatrixSize size, double scale, int64_t threads,
                   T* out);

}  // namespace pyg_batchgnn
