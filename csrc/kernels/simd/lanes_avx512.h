// The vectors of AVX-512, see lanes_baseline.h.

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  using Vector = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kRegisters = 32;
  static constexpr int kTileVectors = 4;
  static constexpr int kSparseVectors = 16;
  static constexpr int kReluBackwardVectors = 8;
  static constexpr int kTwoRowVectors = 14;
  static constexpr int kSumVectors = 16;

  PYG_BATCHGNN_INLINE __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
  PYG_BATCHGNN_INLINE Vector from_bits(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  PYG_BATCHGNN_INLINE Vector from_codes(__m128i codes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  }

  PYG_BATCHGNN_INLINE Vector zero() { return _mm512_setzero_ps(); }
  PYG_BATCHGNN_INLINE Vector fill(float value) { return _mm512_set1_ps(value); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  PYG_BATCHGNN_INLINE Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  PYG_BATCHGNN_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  PYG_BATCHGNN_INLINE uint64_t passing(Vector a) { return _mm512_cmp_ps_mask(a, zero(), _CMP_NLE_UQ); }
  PYG_BATCHGNN_INLINE uint64_t nonzero(Vector a) { return _mm512_cmp_ps_mask(a, zero(), _CMP_NEQ_UQ); }
  PYG_BATCHGNN_INLINE Vector keep(Vector a, uint64_t bits) {
    return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), a);
  }

  PYG_BATCHGNN_INLINE Vector load(const float* p) { return _mm512_loadu_ps(p); }
  PYG_BATCHGNN_INLINE Vector load(const Bfloat16* p) {
    return from_bits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  PYG_BATCHGNN_INLINE Vector load(const Half* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  PYG_BATCHGNN_INLINE Vector load(const Code* p) {
    return from_codes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  PYG_BATCHGNN_INLINE Vector load(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(first(count), p);
  }
  PYG_BATCHGNN_INLINE Vector load(const Bfloat16* p, int64_t count) {
    return from_bits(_mm256_maskz_loadu_epi16(first(count), p));
  }
  PYG_BATCHGNN_INLINE Vector load(const Half* p, int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), p));
  }
  PYG_BATCHGNN_INLINE Vector load(const Code* p, int64_t count) {
    return from_codes(_mm_maskz_loadu_epi8(first(count), p));
  }

  // Rounds to nearest, ties to even. A NaN keeps its upper half and stays a NaN.
  PYG_BATCHGNN_INLINE __m256i to_bfloat16(Vector v) {
    const __m512i word = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(word, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, word, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  }

  PYG_BATCHGNN_INLINE void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  PYG_BATCHGNN_INLINE void store(Bfloat16* p, Vector v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void store(float* p, Vector v, int64_t count) {
    _mm512_mask_storeu_ps(p, first(count), v);
  }
  PYG_BATCHGNN_INLINE void store(Bfloat16* p, Vector v, int64_t count) {
    _mm256_mask_storeu_epi16(p, first(count), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void stream(float* p, Vector v) { _mm512_stream_ps(p, v); }
  PYG_BATCHGNN_INLINE void stream(Bfloat16* p, Vector v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_bfloat16(v));
  }

  PYG_BATCHGNN_INLINE __m256 halves(__m512 v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  PYG_BATCHGNN_INLINE float sum(__m512 v) {
    const __m256 eight = halves(v);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  // Adds in the order of `sum`.
  PYG_BATCHGNN_INLINE void sum4(const __m512* v, float* out) {
    const __m256 a = halves(v[0]), b = halves(v[1]), c = halves(v[2]), d = halves(v[3]);
    const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    const __m256 both = _mm256_add_ps(_mm256_unpacklo_ps(ab, cd), _mm256_unpackhi_ps(ab, cd));
    const __m128 ac = _mm256_castps256_ps128(both), bd = _mm256_extractf128_ps(both, 1);
    _mm_storeu_ps(out, _mm_add_ps(_mm_unpacklo_ps(ac, bd), _mm_unpackhi_ps(ac, bd)));
  }
  PYG_BATCHGNN_INLINE void add_lanes(Vector a, Vector b, float* first, float* second) {
    Vector both = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    both = _mm512_add_ps(both, _mm512_shuffle_ps(both, both, _MM_SHUFFLE(1, 0, 3, 2)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(both), _mm512_extractf32x8_ps(both, 1));
    const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    *first += _mm_cvtss_f32(sum);
    *second += _mm_cvtss_f32(_mm_movehdup_ps(sum));
  }
  // As to_bfloat16, in the upper half of each lane; every NaN becomes the same one.
  PYG_BATCHGNN_INLINE __m512i rounded(Vector a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(sum, nan, _mm512_set1_epi32(0x7FC00000));
  }
  // 64 columns.
  PYG_BATCHGNN_INLINE void round_word(const float* from, uint16_t* to) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i upper = _mm512_add_epi32(_mm512_set1_epi32(0x00030001),
                                           _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x00040004)));
    for (int64_t i = 0; i < 64; i += 2 * kWidth) {
      const __m512i low = rounded(load(from + i)), high = rounded(load(from + i + kWidth));
      _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(low, upper, high));
    }
  }
};

template <>
struct Lanes<double> {
  using Vector = __m512d;
  static constexpr int kWidth = 8;
  static constexpr int kRegisters = 32;
  static constexpr int kTileVectors = 4;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 8;
  static constexpr int kTwoRowVectors = 14;

  PYG_BATCHGNN_INLINE __mmask8 first(int64_t count) { return static_cast<__mmask8>((1u << count) - 1u); }

  PYG_BATCHGNN_INLINE Vector zero() { return _mm512_setzero_pd(); }
  PYG_BATCHGNN_INLINE Vector fill(double value) { return _mm512_set1_pd(value); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return _mm512_add_pd(a, b); }
  PYG_BATCHGNN_INLINE Vector multiply(Vector a, Vector b) { return _mm512_mul_pd(a, b); }
  PYG_BATCHGNN_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
  PYG_BATCHGNN_INLINE uint64_t passing(Vector a) { return _mm512_cmp_pd_mask(a, zero(), _CMP_NLE_UQ); }
  PYG_BATCHGNN_INLINE uint64_t nonzero(Vector a) { return _mm512_cmp_pd_mask(a, zero(), _CMP_NEQ_UQ); }
  PYG_BATCHGNN_INLINE Vector keep(Vector a, uint64_t bits) {
    return _mm512_maskz_mov_pd(static_cast<__mmask8>(bits), a);
  }
  PYG_BATCHGNN_INLINE Vector load(const double* p) { return _mm512_loadu_pd(p); }
  PYG_BATCHGNN_INLINE Vector load(const double* p, int64_t count) {
    return _mm512_maskz_loadu_pd(first(count), p);
  }
  PYG_BATCHGNN_INLINE void store(double* p, Vector v) { _mm512_storeu_pd(p, v); }
  PYG_BATCHGNN_INLINE void store(double* p, Vector v, int64_t count) {
    _mm512_mask_storeu_pd(p, first(count), v);
  }
  PYG_BATCHGNN_INLINE void stream(double* p, Vector v) { _mm512_stream_pd(p, v); }
  PYG_BATCHGNN_INLINE double sum(Vector v) { return _mm512_reduce_add_pd(v); }
  PYG_BATCHGNN_INLINE void sum4(const Vector* v, double* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
  PYG_BATCHGNN_INLINE void add_lanes(Vector a, Vector b, double* first, double* second) {
    const Vector both = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    const __m256d half = _mm256_add_pd(_mm512_castpd512_pd256(both), _mm512_extractf64x4_pd(both, 1));
    const __m128d sum = _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
    *first += _mm_cvtsd_f64(sum);
    *second += _mm_cvtsd_f64(_mm_unpackhi_pd(sum, sum));
  }
};

// Keeps the compiler from loading again for each use.
template <class Vector>
PYG_BATCHGNN_INLINE Vector in_register(Vector value) {
  asm("" : "+v"(value));
  return value;
}

// See scan_body.h.
typedef uint64_t EightWords __attribute__((vector_size(64)));
PYG_BATCHGNN_INLINE int64_t write_below(EightWords value, EightWords word, uint64_t limit, void* out) {
  const __mmask8 below =
      _mm512_cmple_epu64_mask((__m512i)word, _mm512_set1_epi64(static_cast<int64_t>(limit)));
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi64(below, (__m512i)value));
  return __builtin_popcount(below);
}

#include "kernels/simd/dropout_avx512.h"

PYG_BATCHGNN_INLINE void stream_lines(const void* from, int64_t bytes, void* to) {
  for (int64_t at = 0; at < bytes; at += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(static_cast<char*>(to) + at),
                        _mm512_loadu_si512(static_cast<const char*>(from) + at));
  }
}

PYG_BATCHGNN_INLINE void fence() { _mm_sfence(); }
