#include "kernels/simd/attention.h"

#include "kernels/simd/dispatch.h"

namespace pyg_batchgnn {

int64_t attention_scratch(int64_t longest, int64_t heads, int64_t columns) {
  constexpr int64_t kPadding = 64;  // each of the arrays is filled up to whole vectors
  return 3 * (longest * heads + kPadding) + heads * columns + columns + 4 * (heads + kPadding);
}

const AttentionKernels& attention_kernels() {
#if defined(__x86_64__)
  switch (simd_level()) {
    case Simd::kAvx512:
      return kAttentionAvx512;
    case Simd::kAvx2:
      return kAttentionAvx2;
    default:
      break;
  }
#endif
  return kAttentionBaseline;
}

}  // namespace pyg_batchgnn
