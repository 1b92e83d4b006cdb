#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/simd/attention.h"

#if defined(__x86_64__)

// After the headers that other files share, whose functions must run on every processor.
#pragma GCC target("avx2,fma,f16c,popcnt")

#include "kernels/simd/lanes_avx2.h"
// Needs the lanes.
#include "kernels/simd/attention_body.h"

namespace pyg_batchgnn {

const AttentionKernels kAttentionAvx2{&forward_block, &backward_block, &input_grad_block};

}  // namespace pyg_batchgnn

#endif
