// Vectors of AVX2 with FMA and F16C. Included once by a file compiled for them (see attention_avx2.cpp).
#pragma once

#include <immintrin.h>

#include "kernels/operand.h"

namespace pyg_batchgnn {
namespace {

template <class Sum>
struct Lanes;

template <>
struct Lanes<float> {
  using Vector = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kRegisters = 16;

  static __m256i first(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static __m256 zero() { return _mm256_setzero_ps(); }
  static __m256 fill(float value) { return _mm256_set1_ps(value); }
  static __m256 fma(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
  static __m256 add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }

  static __m256 load(const float* p) { return _mm256_loadu_ps(p); }
  static __m256 load(const Bfloat16* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 load(const Half* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256 load(const float* p, int64_t count) { return _mm256_maskload_ps(p, first(count)); }
  template <class T>
  static __m256 load(const T* p, int64_t count) {
    T padded[kWidth] = {};
    for (int64_t i = 0; i < count; ++i) padded[i] = p[i];
    return load(padded);
  }

  static void store(float* p, __m256 v) { _mm256_storeu_ps(p, v); }
  static void stream(float* p, __m256 v) { _mm256_stream_ps(p, v); }
  static void end_stream() { _mm_sfence(); }
  static void store(float* p, __m256 v, int64_t count) { _mm256_maskstore_ps(p, first(count), v); }
  template <class T>
  static void store(T* p, __m256 v, int64_t count = kWidth) {
    float all[kWidth];
    _mm256_storeu_ps(all, v);
    for (int64_t i = 0; i < count; ++i) p[i] = narrow<T>(all[i]);
  }

  static float sum(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  static void sum4(const __m256* v, float* out) {
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
};

template <>
struct Lanes<double> {
  using Vector = __m256d;
  static constexpr int kWidth = 4;
  static constexpr int kRegisters = 16;

  static __m256i first(int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }

  static __m256d zero() { return _mm256_setzero_pd(); }
  static __m256d fill(double value) { return _mm256_set1_pd(value); }
  static __m256d fma(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
  static __m256d add(__m256d a, __m256d b) { return _mm256_add_pd(a, b); }
  static __m256d load(const double* p) { return _mm256_loadu_pd(p); }
  static __m256d load(const double* p, int64_t count) { return _mm256_maskload_pd(p, first(count)); }
  static void store(double* p, __m256d v) { _mm256_storeu_pd(p, v); }
  static void stream(double* p, __m256d v) { _mm256_stream_pd(p, v); }
  static void end_stream() { _mm_sfence(); }
  static void store(double* p, __m256d v, int64_t count) { _mm256_maskstore_pd(p, first(count), v); }
  static double sum(__m256d v) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
  static void sum4(const __m256d* v, double* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
};

}  // namespace
}  // namespace pyg_batchgnn
