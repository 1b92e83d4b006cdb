#include "kernels/simd/norm.h"

#include <algorithm>

#define PYG_BATCHGNN_BODY "kernels/simd/norm_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
const NormKernels<T>& norm_kernels() {
  PYG_BATCHGNN_DISPATCH(kNormKernels<T>)
}

template <class T>
const MomentKernels<T>& moment_kernels() {
  PYG_BATCHGNN_DISPATCH(kMomentKernels<T>)
}

template const NormKernels<float>& norm_kernels();
template const NormKernels<double>& norm_kernels();
template const NormKernels<Bfloat16>& norm_kernels();
template const MomentKernels<float>& moment_kernels();
template const MomentKernels<double>& moment_kernels();

}  // namespace pyg_batchgnn
