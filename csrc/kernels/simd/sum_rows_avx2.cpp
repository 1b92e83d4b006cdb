// The standard headers come before the pragma: see sum_rows_avx512.cpp.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/simd/sum_rows.h"
#include "kernels/simd/sum_rows_levels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC target("avx2,fma,f16c")

namespace pyg_batchgnn {
namespace avx2 {
namespace {

#define PYG_BATCHGNN_INLINE __attribute__((always_inline)) static inline

struct Lanes {
  using V = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kVectors = 13;  // of 16 registers; 104 columns, so that 100 are one chunk

  PYG_BATCHGNN_INLINE V from(float, const void* at) { return _mm256_loadu_ps(static_cast<const float*>(at)); }
  PYG_BATCHGNN_INLINE V from(Half, const void* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(at)));
  }
  PYG_BATCHGNN_INLINE V from(Bfloat16, const void* at) {
    const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  PYG_BATCHGNN_INLINE V zero() { return _mm256_setzero_ps(); }
  PYG_BATCHGNN_INLINE V broadcast(float a) { return _mm256_set1_ps(a); }
  PYG_BATCHGNN_INLINE V subtract(V a, V b) { return _mm256_sub_ps(a, b); }
  PYG_BATCHGNN_INLINE V multiply(V a, V b) { return _mm256_mul_ps(a, b); }
  PYG_BATCHGNN_INLINE V multiply_add(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  PYG_BATCHGNN_INLINE V relu(V a) { return _mm256_max_ps(zero(), a); }  // in this order a NaN stays one
  // v where z is not negative or zero, else 0.
  PYG_BATCHGNN_INLINE V relu_backward(V z, V v) {
    return _mm256_andnot_ps(_mm256_cmp_ps(z, zero(), _CMP_LE_OQ), v);
  }

  template <class In>
  PYG_BATCHGNN_INLINE V load(const In* at) {
    return from(In{}, at);
  }
  template <class In>
  PYG_BATCHGNN_INLINE V load_part(const In* at, int64_t count) {
    In copy[kWidth] = {};
    std::memcpy(copy, at, static_cast<size_t>(count) * sizeof(In));
    return from(In{}, copy);
  }

  PYG_BATCHGNN_INLINE void store(float* at, V v) { _mm256_storeu_ps(at, v); }
  PYG_BATCHGNN_INLINE void stream(float* at, V v) { _mm256_stream_ps(at, v); }
  PYG_BATCHGNN_INLINE void fence() { _mm_sfence(); }
  PYG_BATCHGNN_INLINE void store_part(float* at, int64_t count, V v) {
    float copy[kWidth];
    _mm256_storeu_ps(copy, v);
    std::memcpy(at, copy, static_cast<size_t>(count) * sizeof(float));
  }

  // To the nearest, ties to even; a NaN keeps its upper half and stays one.
  PYG_BATCHGNN_INLINE __m128i to_bfloat16(V v) {
    const __m256i word = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(word, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(word, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
  PYG_BATCHGNN_INLINE void store(Bfloat16* at, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void stream(Bfloat16* at, V v) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(at), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void store_part(Bfloat16* at, int64_t count, V v) {
    Bfloat16 copy[kWidth];
    store(copy, v);
    std::memcpy(at, copy, static_cast<size_t>(count) * sizeof(Bfloat16));
  }
};

#include "kernels/simd/sum_rows_lanes.h"

}  // namespace
}  // namespace avx2

void sum_rows_avx2(const SumRows<float>& task, Element element) { avx2::sum_any(task, element); }

}  // namespace pyg_batchgnn
#endif
