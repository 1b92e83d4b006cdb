// Vectors of AVX-512. Included once by a file compiled for it (see attention_avx512.cpp).
#pragma once

#include <immintrin.h>

#include "kernels/operand.h"

namespace pyg_batchgnn {
namespace {

template <class Sum>
struct Lanes;

template <>
struct Lanes<float> {
  using Vector = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kRegisters = 32;

  static __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static __m512i bf16_bits(__m512 v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_mask_set1_epi32(_mm512_srli_epi32(rounded, 16), nan, 0x7FC0);
  }

  static __m512 zero() { return _mm512_setzero_ps(); }
  static __m512 fill(float value) { return _mm512_set1_ps(value); }
  static __m512 fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
  static __m512 add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }

  static __m512 load(const float* p) { return _mm512_loadu_ps(p); }
  static __m512 load(const Bfloat16* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static __m512 load(const Half* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 load(const float* p, int64_t count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static __m512 load(const Bfloat16* p, int64_t count) {
    const __m256i bits = _mm256_maskz_loadu_epi16(first(count), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static __m512 load(const Half* p, int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), p));
  }

  static void store(float* p, __m512 v) { _mm512_storeu_ps(p, v); }
  static void stream(float* p, __m512 v) { _mm512_stream_ps(p, v); }
  static void end_stream() { _mm_sfence(); }
  static void store(Bfloat16* p, __m512 v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(bf16_bits(v)));
  }
  static void store(float* p, __m512 v, int64_t count) { _mm512_mask_storeu_ps(p, first(count), v); }
  static void store(Bfloat16* p, __m512 v, int64_t count) {
    _mm256_mask_storeu_epi16(p, first(count), _mm512_cvtepi32_epi16(bf16_bits(v)));
  }

  static __m256 halves(__m512 v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  static float sum(__m512 v) {
    const __m256 eight = halves(v);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  static void sum4(const __m512* v, float* out) {
    const __m256 ab = _mm256_hadd_ps(halves(v[0]), halves(v[1]));
    const __m256 cd = _mm256_hadd_ps(halves(v[2]), halves(v[3]));
    const __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
};

template <>
struct Lanes<double> {
  using Vector = __m512d;
  static constexpr int kWidth = 8;
  static constexpr int kRegisters = 32;

  static __mmask8 first(int64_t count) { return static_cast<__mmask8>((1u << count) - 1u); }

  static __m512d zero() { return _mm512_setzero_pd(); }
  static __m512d fill(double value) { return _mm512_set1_pd(value); }
  static __m512d fma(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
  static __m512d add(__m512d a, __m512d b) { return _mm512_add_pd(a, b); }
  static __m512d load(const double* p) { return _mm512_loadu_pd(p); }
  static __m512d load(const double* p, int64_t count) { return _mm512_maskz_loadu_pd(first(count), p); }
  static void store(double* p, __m512d v) { _mm512_storeu_pd(p, v); }
  static void stream(double* p, __m512d v) { _mm512_stream_pd(p, v); }
  static void end_stream() { _mm_sfence(); }
  static void store(double* p, __m512d v, int64_t count) { _mm512_mask_storeu_pd(p, first(count), v); }
  static double sum(__m512d v) { return _mm512_reduce_add_pd(v); }
  static void sum4(const __m512d* v, double* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
};

}  // namespace
}  // namespace pyg_batchgnn
