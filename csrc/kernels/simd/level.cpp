#include "kernels/simd/level.h"

#include <cstdlib>
#include <string>

namespace pyg_batchgnn {
namespace {

Simd detect() {
#if defined(__x86_64__)
  const char* variable = std::getenv("PYG_BATCHGNN_SIMD");
  const std::string limit = variable == nullptr ? "" : variable;
  if (limit == "baseline") return Simd::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx512 && limit != "avx2") return Simd::kAvx512;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
                    __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2) return Simd::kAvx2;
#endif
  return Simd::kBaseline;
}

}  // namespace

Simd simd_level() noexcept {
  static const Simd level = detect();
  return level;
}

}  // namespace pyg_batchgnn
