#include "kernels/simd/level.h"

#include <algorithm>
#include <atomic>
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

Bfloat16Level fastest_bfloat16_level() {
  const char* variable = std::getenv("PYG_BATCHGNN_BFLOAT16");
  const std::string wanted = variable == nullptr ? "" : variable;
  if (wanted == "widened") return Bfloat16Level::kWidened;
#if defined(__x86_64__)
  if (wanted != "pairs" && __builtin_cpu_is("intel")) return Bfloat16Level::kWidened;
#endif
  return most_bfloat16_level();
}

std::atomic<Bfloat16Level>& level_in_use() {
  static std::atomic<Bfloat16Level> level{fastest_bfloat16_level()};
  return level;
}

}  // namespace

Simd simd_level() noexcept {
  static const Simd level = detect();
  return level;
}

Bfloat16Level most_bfloat16_level() noexcept {
#if defined(__x86_64__)
  static const bool pairs = simd_level() == Simd::kAvx512 && __builtin_cpu_supports("avx512bf16");
  if (pairs) return Bfloat16Level::kPairs;
#endif
  return Bfloat16Level::kWidened;
}

Bfloat16Level bfloat16_level() noexcept { return level_in_use().load(std::memory_order_relaxed); }

void set_bfloat16_level(Bfloat16Level level) noexcept {
  level_in_use().store(std::min(level, most_bfloat16_level()), std::memory_order_relaxed);
}

}  // namespace pyg_batchgnn
