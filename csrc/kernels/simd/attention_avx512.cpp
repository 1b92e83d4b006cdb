#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/simd/attention.h"

#if defined(__x86_64__)

// GCC 12 takes the undefined values inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

// After the headers that other files share, whose functions must run on every processor.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")

#include "kernels/simd/lanes_avx512.h"
// Needs the lanes.
#include "kernels/simd/attention_body.h"

namespace pyg_batchgnn {

const AttentionKernels kAttentionAvx512{&forward_block, &backward_block, &input_grad_block};

}  // namespace pyg_batchgnn

#endif
