#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/simd/attention.h"
#include "kernels/simd/lanes_baseline.h"
// Needs the lanes.
#include "kernels/simd/attention_body.h"

namespace pyg_batchgnn {

const AttentionKernels kAttentionBaseline{&forward_block, &backward_block, &input_grad_block};

}  // namespace pyg_batchgnn
