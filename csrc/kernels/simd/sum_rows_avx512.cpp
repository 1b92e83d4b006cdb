// The standard headers come before the pragma: what they define inline must not be compiled for one kind of
// processor and then, merged by the linker, be used on all.
#include <cstdint>
#include <type_traits>

#include "kernels/simd/sum_rows.h"
#include "kernels/simd/sum_rows_levels.h"

#if defined(__x86_64__)
// GCC 12 takes its own header's deliberately undefined operands for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace pyg_batchgnn {
namespace avx512 {
namespace {

#define PYG_BATCHGNN_INLINE __attribute__((always_inline)) static inline

struct Lanes {
  using V = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kVectors = 16;

  PYG_BATCHGNN_INLINE __mmask16 part(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  PYG_BATCHGNN_INLINE V from_half(__m256i bits) { return _mm512_cvtph_ps(bits); }
  PYG_BATCHGNN_INLINE V from_bfloat16(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  PYG_BATCHGNN_INLINE V zero() { return _mm512_setzero_ps(); }
  PYG_BATCHGNN_INLINE V broadcast(float a) { return _mm512_set1_ps(a); }
  PYG_BATCHGNN_INLINE V subtract(V a, V b) { return _mm512_sub_ps(a, b); }
  PYG_BATCHGNN_INLINE V multiply(V a, V b) { return _mm512_mul_ps(a, b); }
  PYG_BATCHGNN_INLINE V multiply_add(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  PYG_BATCHGNN_INLINE V relu(V a) { return _mm512_max_ps(zero(), a); }  // in this order a NaN stays one
  // v where z is not negative or zero, else 0.
  PYG_BATCHGNN_INLINE V relu_backward(V z, V v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(z, zero(), _CMP_NLE_UQ), v);
  }

  PYG_BATCHGNN_INLINE V load(const float* at) { return _mm512_loadu_ps(at); }
  PYG_BATCHGNN_INLINE V load(const Half* at) {
    return from_half(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  PYG_BATCHGNN_INLINE V load(const Bfloat16* at) {
    return from_bfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  PYG_BATCHGNN_INLINE V load_part(const float* at, int64_t count) {
    return _mm512_maskz_loadu_ps(part(count), at);
  }
  PYG_BATCHGNN_INLINE V load_part(const Half* at, int64_t count) {
    return from_half(_mm256_maskz_loadu_epi16(part(count), at));
  }
  PYG_BATCHGNN_INLINE V load_part(const Bfloat16* at, int64_t count) {
    return from_bfloat16(_mm256_maskz_loadu_epi16(part(count), at));
  }

  PYG_BATCHGNN_INLINE void store(float* at, V v) { _mm512_storeu_ps(at, v); }
  PYG_BATCHGNN_INLINE void stream(float* at, V v) { _mm512_stream_ps(at, v); }
  PYG_BATCHGNN_INLINE void fence() { _mm_sfence(); }
  PYG_BATCHGNN_INLINE void store_part(float* at, int64_t count, V v) {
    _mm512_mask_storeu_ps(at, part(count), v);
  }

  // To the nearest, ties to even; a NaN keeps its upper half and stays one.
  PYG_BATCHGNN_INLINE __m256i to_bfloat16(V v) {
    const __m512i word = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(word, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, word, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  }
  PYG_BATCHGNN_INLINE void store(Bfloat16* at, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void stream(Bfloat16* at, V v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(at), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void store_part(Bfloat16* at, int64_t count, V v) {
    _mm256_mask_storeu_epi16(at, part(count), to_bfloat16(v));
  }
};

#include "kernels/simd/sum_rows_lanes.h"

}  // namespace
}  // namespace avx512

void sum_rows_avx512(const SumRows<float>& task, Element element) { avx512::sum_any(task, element); }

}  // namespace pyg_batchgnn
#endif
