#include "kernels/simd/attention.h"

#include <cstddef>
#include <limits>
#include <type_traits>

#define PYG_BATCHGNN_BODY "kernels/simd/attention_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

int64_t attention_scratch(int64_t longest, int64_t heads, int64_t width, int64_t row_columns) {
  constexpr int64_t kPadding = 64;  // each array has room for whole vectors
  return 3 * (longest * heads + kPadding) + heads * width + 2 * row_columns + 4 * (heads + kPadding);
}

const AttentionKernels& attention_kernels() { PYG_BATCHGNN_DISPATCH(kAttentionKernels) }

}  // namespace pyg_batchgnn
