// The inner loops of batch normalisation and moments of columns: some rows, one thread.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

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

// Rows of a matrix, `stride` elements apart.
template <class T>
struct StridedRows {
  const T* data;
  int64_t stride, rows, columns;

  const T* row(int64_t i) const { return data + i * stride; }
};

template <class T>
struct NormKernels {
  // sum[c] = sum of x - center, square[c] = sum of (x - center)^2.
  void (*center_sums)(const Rows<T>& x, const Wide<T>* center, Wide<T>* sum, Wide<T>* square);
  // y = z, or relu(z).
  void (*affine_rows)(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y);
  // With g = grad, zero where relu(z) is: sum[c] = sum of g, product[c] = sum of g * (x - center).
  void (*gradient_sums)(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                        Wide<T>* sum, Wide<T>* product);
  // out = g * scale - constant - (x - center) * slope.
  void (*gradient_rows)(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                        const Wide<T>* constant, const Wide<T>* slope, T* out);
};

// T: float, double or Bfloat16.
template <class T>
const NormKernels<T>& norm_kernels();

template <class T>
struct MomentKernels {
  // The mean of at least one row, summed about the first row: exact for equal numbers.
  void (*row_mean)(const StridedRows<T>& x, T* mean);
  // With d = (x[i, :] + shift) - center: sum[c] = sum of d, square[c] = sum of d * d.
  void (*shifted_sums)(const StridedRows<T>& x, const T* shift, const T* center, T* sum, T* square);
};

// T: float or double.
template <class T>
const MomentKernels<T>& moment_kernels();

}  // namespace pyg_batchgnn
