#include "kernels/simd/products_levels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,popcnt")
#endif

namespace pyg_batchgnn::products_avx2 {

#define PYG_BATCHGNN_INLINE __attribute__((always_inline)) static inline

// Keeps the compiler from loading again for each use.
template <class Vector>
PYG_BATCHGNN_INLINE Vector in_register(Vector value) {
  asm("" : "+v"(value));
  return value;
}

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  using Vector = __m256;
  static constexpr int64_t kWidth = 8;
  static constexpr int kTileVectors = 2;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 4;
  static constexpr int kTwoRowVectors = 6;
  PYG_BATCHGNN_INLINE Vector zero() { return _mm256_setzero_ps(); }
  PYG_BATCHGNN_INLINE Vector all(float value) { return _mm256_set1_ps(value); }
  PYG_BATCHGNN_INLINE Vector load(const float* from) { return _mm256_loadu_ps(from); }
  PYG_BATCHGNN_INLINE void store(float* to, Vector a) { _mm256_storeu_ps(to, a); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  PYG_BATCHGNN_INLINE Vector times(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  PYG_BATCHGNN_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  PYG_BATCHGNN_INLINE uint64_t passing(Vector a) {
    return static_cast<uint64_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, zero(), _CMP_NLE_UQ)));
  }
  PYG_BATCHGNN_INLINE uint64_t nonzero(Vector a) {
    return static_cast<uint64_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, zero(), _CMP_NEQ_UQ)));
  }
  PYG_BATCHGNN_INLINE Vector keep(Vector a, uint64_t bits) {
    const __m256i lane = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    const __m256i chosen = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
    return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(chosen, lane)));
  }
  PYG_BATCHGNN_INLINE void add_lanes(Vector a, Vector b, float* first, float* second) {
    const Vector both = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
    const __m128 sum = _mm_add_ps(half, _mm_movehl_ps(half, half));
    *first += _mm_cvtss_f32(sum);
    *second += _mm_cvtss_f32(_mm_movehdup_ps(sum));
  }
};

template <>
struct Lanes<double> {
  using Vector = __m256d;
  static constexpr int64_t kWidth = 4;
  static constexpr int kTileVectors = 2;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 4;
  static constexpr int kTwoRowVectors = 6;
  PYG_BATCHGNN_INLINE Vector zero() { return _mm256_setzero_pd(); }
  PYG_BATCHGNN_INLINE Vector all(double value) { return _mm256_set1_pd(value); }
  PYG_BATCHGNN_INLINE Vector load(const double* from) { return _mm256_loadu_pd(from); }
  PYG_BATCHGNN_INLINE void store(double* to, Vector a) { _mm256_storeu_pd(to, a); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  PYG_BATCHGNN_INLINE Vector times(Vector a, Vector b) { return _mm256_mul_pd(a, b); }
  PYG_BATCHGNN_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  PYG_BATCHGNN_INLINE uint64_t passing(Vector a) {
    return static_cast<uint64_t>(_mm256_movemask_pd(_mm256_cmp_pd(a, zero(), _CMP_NLE_UQ)));
  }
  PYG_BATCHGNN_INLINE uint64_t nonzero(Vector a) {
    return static_cast<uint64_t>(_mm256_movemask_pd(_mm256_cmp_pd(a, zero(), _CMP_NEQ_UQ)));
  }
  PYG_BATCHGNN_INLINE Vector keep(Vector a, uint64_t bits) {
    const __m256i lane = _mm256_set_epi64x(8, 4, 2, 1);
    const __m256i chosen = _mm256_and_si256(_mm256_set1_epi64x(static_cast<int64_t>(bits)), lane);
    return _mm256_and_pd(a, _mm256_castsi256_pd(_mm256_cmpeq_epi64(chosen, lane)));
  }
};

PYG_BATCHGNN_INLINE void read_half(const uint16_t* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i]);
}

// Whether dropout keeps columns 4 * word to 4 * word + 63 of a row. Some column must be dropped.
PYG_BATCHGNN_INLINE uint64_t kept_columns(const Dropout& dropout, uint64_t row_key, int64_t word) {
  alignas(32) uint64_t words[16];
  for (int64_t i = 0; i < 16; ++i) words[i] = dropout_word(row_key, word + i);
  const __m256i highest = _mm256_set1_epi16(static_cast<int16_t>(dropout.kept_levels - 1));
  uint64_t bits = 0;
  for (int at = 0; at < 16; at += 8) {
    const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + at));
    const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + at + 4));
    const __m256i kept_a = _mm256_cmpeq_epi16(_mm256_min_epu16(a, highest), a);
    const __m256i kept_b = _mm256_cmpeq_epi16(_mm256_min_epu16(b, highest), b);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(kept_a, kept_b), 0xD8);
    bits |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(packed))) << (4 * at);
  }
  return dropout.kept_levels == 0 ? 0 : bits;
}

PYG_BATCHGNN_INLINE void stream(const void* from, int64_t bytes, void* to) {
  for (int64_t at = 0; at < bytes; at += 32) {
    const auto* line = reinterpret_cast<const __m256i*>(static_cast<const char*>(from) + at);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(static_cast<char*>(to) + at), _mm256_loadu_si256(line));
  }
}

PYG_BATCHGNN_INLINE void fence() { _mm_sfence(); }

#include "kernels/simd/products_body.h"

}  // namespace pyg_batchgnn::products_avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
