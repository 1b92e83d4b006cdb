// The same kernels, compiled for each kind of processor.
#pragma once

#include "kernels/simd/products.h"

#define PYG_BATCHGNN_PRODUCTS_OF(level)          \
  namespace level {                              \
  const ProductKernels<float>& kernels(float);   \
  const ProductKernels<double>& kernels(double); \
  }

namespace pyg_batchgnn {

PYG_BATCHGNN_PRODUCTS_OF(products_avx512)
PYG_BATCHGNN_PRODUCTS_OF(products_avx2)
PYG_BATCHGNN_PRODUCTS_OF(products_baseline)

}  // namespace pyg_batchgnn
