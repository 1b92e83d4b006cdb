// ReLU and keyed dropout in place, and the gradient behind a mask of bits.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/dropout.h"

namespace pyg_batchgnn {

// The operations on the elements of a matrix. Either may be absent.
struct Activation {
  bool relu;
  const Dropout* dropout;
  const int64_t* node;  // [rows] ids of rows for dropout; row numbers if null
};

struct MatrixSize {
  int64_t rows, columns;
  int64_t mask_bytes() const { return (columns + 7) / 8; }  // bytes per row
};

// Sets x = dropout(relu(x)). mask [rows, mask_bytes]: bit c % 8 of byte c / 8 is set if column c
// passes.
template <class T>
void activate(T* x, MatrixSize size, const Activation& activation, int64_t threads, uint8_t* mask);

// Sets out = grad * scale where the mask has a bit, else 0.
template <class T>
void mask_gradient(const T* grad, const uint8_t* mask, MatrixSize size, double scale, int64_t threads,
                   T* out);

}  // namespace pyg_batchgnn
