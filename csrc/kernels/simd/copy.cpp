#include "kernels/simd/copy.h"

#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pyg_batchgnn {
namespace {

void copy_baseline(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

#if defined(__x86_64__)

__attribute__((target("avx2"))) void copy_avx2(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (size_t at = 0; at < bytes; at += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + at),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + at)));
  }
  _mm_sfence();  // streamed stores are not ordered with the release that tells another thread of them
}

__attribute__((target("avx512f"))) void copy_avx512(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (size_t at = 0; at < bytes; at += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + at), _mm512_loadu_si512(in + at));
  }
  _mm_sfence();
}

#endif

struct Choice {
  StreamCopy copy;
  const char* name;
};

// PYG_BATCHGNN_SIMD=baseline|avx2 holds the choice down, which is how the tests reach every path.
Choice choose() {
#if defined(__x86_64__)
  const char* variable = std::getenv("PYG_BATCHGNN_SIMD");
  const std::string limit = variable == nullptr ? "" : variable;
  const bool allow512 = limit != "baseline" && limit != "avx2", allow2 = limit != "baseline";
  if (allow512 && __builtin_cpu_supports("avx512f")) return {copy_avx512, "avx512"};
  if (allow2 && __builtin_cpu_supports("avx2")) return {copy_avx2, "avx2"};
#endif
  return {copy_baseline, "baseline"};
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

StreamCopy stream_copy() noexcept { return chosen().copy; }

const char* stream_copy_name() noexcept { return chosen().name; }

}  // namespace pyg_batchgnn
