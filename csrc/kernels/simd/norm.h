// The inner loops of batch normalisation: some rows, all columns, one thread.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"

namespace pyg_batchgnn {

// Rows of a row-major matrix without gaps.
template <class T>
struct Rows {
  const T* data;
  int64_t rows, columns;
};

// z = (x - center) * scale + shift, with one value of each per column. The subtraction comes first,
// so that a deviation that is small compared to the mean keeps its digits.
template <class A>
struct Affine {
  const A* center;
  const A* scale;
  const A* shift;
};

enum class Epilogue : bool { kNone, kRelu };

// sum[c] = sum of x - center, square[c] = sum of (x - center)^2.
template <class T>
void center_sums(const Rows<T>& x, const Wide<T>* center, Wide<T>* sum, Wide<T>* square);

// y = z, or relu(z).
template <class T>
void affine_rows(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y);

// With g = grad, zero where a ReLU of z is: sum[c] = sum of g, product[c] = sum of g * (x -
// center).
template <class T>
void gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   Wide<T>* sum, Wide<T>* product);

// out = g * scale - constant - (x - center) * slope.
template <class T>
void gradient_rows(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   const Wide<T>* constant, const Wide<T>* slope, T* out);

}  // namespace pyg_batchgnn
