// Compiles PYG_BATCHGNN_BODY for each level, in the namespaces avx512, avx2 and baseline. Included
// once by a kernel's .cpp file, behind the headers that the body needs:
//
// #define PYG_BATCHGNN_BODY "kernels/simd/norm_body.h" #include "kernels/simd/each_level.h"
//
// A body and the lanes are included inside a namespace, so they include nothing but other bodies.
// The baseline also serves a level that PYG_BATCHGNN_NO_AVX512 or PYG_BATCHGNN_NO_AVX2 leaves out:
// tests with sanitizers compile less so.

#include "kernels/operand.h"
#include "kernels/random.h"
#include "kernels/simd/level.h"

#if defined(__x86_64__)

namespace pyg_batchgnn::baseline {}

#if defined(PYG_BATCHGNN_NO_AVX512)
namespace pyg_batchgnn {
namespace avx512 = baseline;
}
#else
PYG_BATCHGNN_BEGIN_LEVEL(PYG_BATCHGNN_AVX512)
namespace pyg_batchgnn::avx512 {
namespace {
#include "kernels/simd/lanes_avx512.h"
#include PYG_BATCHGNN_BODY
}  // namespace
}  // namespace pyg_batchgnn::avx512
PYG_BATCHGNN_END_LEVEL
#endif

#if defined(PYG_BATCHGNN_NO_AVX2)
namespace pyg_batchgnn {
namespace avx2 = baseline;
}
#else
PYG_BATCHGNN_BEGIN_LEVEL(PYG_BATCHGNN_AVX2)
namespace pyg_batchgnn::avx2 {
namespace {
#include "kernels/simd/lanes_avx2.h"
#include PYG_BATCHGNN_BODY
}  // namespace
}  // namespace pyg_batchgnn::avx2
PYG_BATCHGNN_END_LEVEL
#endif

#endif

namespace pyg_batchgnn::baseline {
namespace {
#include "kernels/simd/lanes_baseline.h"
#include PYG_BATCHGNN_BODY
}  // namespace
}  // namespace pyg_batchgnn::baseline
