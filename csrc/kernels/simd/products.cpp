#include "kernels/simd/products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#define PYG_BATCHGNN_BODY "kernels/simd/products_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
const ProductKernels<T>& product_kernels() {
  PYG_BATCHGNN_DISPATCH(kProductKernels<T>)
}

template const ProductKernels<float>& product_kernels();
template const ProductKernels<double>& product_kernels();

// Swaps smaller and smaller squares off the diagonal (Warren, Hacker's Delight, 7-3).
void transpose_bits(uint64_t words[kWordBits]) {
  uint64_t low = 0x00000000FFFFFFFFu;
  for (int64_t half = kWordBits / 2; half != 0; half /= 2, low ^= low << half) {
    for (int64_t row = 0; row < kWordBits; row = ((row | half) + 1) & ~half) {
      const uint64_t swapped = ((words[row] >> half) ^ words[row | half]) & low;
      words[row] ^= swapped << half;
      words[row | half] ^= swapped;
    }
  }
}

}  // namespace pyg_batchgnn
