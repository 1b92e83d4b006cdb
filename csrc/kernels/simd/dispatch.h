// Which instructions the processor at hand has, and kernels compiled once for each kind.
//
// A kernel is written once, as an inlined body in plain C++, and compiled for AVX-512, for AVX2 and for what
// every processor has: `PYG_BATCHGNN_VARIANTS` makes the three and chooses one when the program runs. Copies
// of table rows are not among them: they are std::memcpy, which does the same for itself and is as fast as
// anything tried here.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

enum class Simd : int { kBaseline = 0, kAvx2 = 256, kAvx512 = 512 };

// The widest that the processor has; PYG_BATCHGNN_SIMD=avx2|baseline holds it down, which is how tests reach
// all.
Simd simd_level() noexcept;

#if defined(__x86_64__)
#define PYG_BATCHGNN_TARGET(features) __attribute__((target(features)))
#else
#define PYG_BATCHGNN_TARGET(features)
#endif

// Defines `result name(parameters)` as the variant of the inlined `body` that suits the processor.
#define PYG_BATCHGNN_VARIANTS(result, name, body, parameters, arguments)                          \
  PYG_BATCHGNN_TARGET("avx512f,avx512bw,avx512vl,avx512dq") result name##_avx512 parameters {     \
    return body arguments;                                                                        \
  }                                                                                               \
  PYG_BATCHGNN_TARGET("avx2,fma,popcnt") result name##_avx2 parameters { return body arguments; } \
  result name##_baseline parameters { return body arguments; }                                    \
  result name parameters {                                                                        \
    switch (simd_level()) {                                                                       \
      case Simd::kAvx512:                                                                         \
        return name##_avx512 arguments;                                                           \
      case Simd::kAvx2:                                                                           \
        return name##_avx2 arguments;                                                             \
      default:                                                                                    \
        return name##_baseline arguments;                                                         \
    }                                                                                             \
  }

}  // namespace pyg_batchgnn
