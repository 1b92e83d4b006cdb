#include "kernels/simd/level.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "kernels/simd/tiles.h"

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

Bfloat16Level first_bfloat16_level() {
  const char* variable = std::getenv("PYG_BATCHGNN_BFLOAT16");
  const std::string wanted = variable == nullptr ? "" : variable;
  const Bfloat16Level most = most_bfloat16_level();
  if (wanted == "widened") return Bfloat16Level::kWidened;
  if (wanted == "pairs") return std::min(most, Bfloat16Level::kPairs);
  if (wanted == "tiles") return most;
#if defined(__x86_64__)
  const bool intel = __builtin_cpu_is("intel");
#else
  const bool intel = false;
#endif
  return default_bfloat16_level(most, intel, has_matrix_unit());
}

std::atomic<Bfloat16Level>& level_in_use() {
  static std::atomic<Bfloat16Level> level{first_bfloat16_level()};
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
  if (pairs) return tile_kernels() != nullptr ? Bfloat16Level::kTiles : Bfloat16Level::kPairs;
#endif
  return Bfloat16Level::kWidened;
}

Bfloat16Level bfloat16_level() noexcept { return level_in_use().load(std::memory_order_relaxed); }

void set_bfloat16_level(Bfloat16Level level) noexcept {
  level_in_use().store(std::min(level, most_bfloat16_level()), std::memory_order_relaxed);
}

}  // namespace pyg_batchgnn
