// The vectors of AVX2 with FMA and F16C, see lanes_baseline.h.

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  using Vector = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kRegisters = 16;
  static constexpr int kTileVectors = 2;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 4;
  static constexpr int kTwoRowVectors = 6;
  static constexpr int kSumVectors = 13;  // 104 columns, so that 100 are one chunk

  PYG_BATCHGNN_INLINE __m256i first(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  PYG_BATCHGNN_INLINE Vector zero() { return _mm256_setzero_ps(); }
  PYG_BATCHGNN_INLINE Vector fill(float value) { return _mm256_set1_ps(value); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  PYG_BATCHGNN_INLINE Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
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

  PYG_BATCHGNN_INLINE Vector load(const float* p) { return _mm256_loadu_ps(p); }
  PYG_BATCHGNN_INLINE Vector load(const Bfloat16* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  PYG_BATCHGNN_INLINE Vector load(const Half* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  PYG_BATCHGNN_INLINE Vector load(const Code* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  PYG_BATCHGNN_INLINE Vector load(const float* p, int64_t count) {
    return _mm256_maskload_ps(p, first(count));
  }
  template <class T>
  PYG_BATCHGNN_INLINE Vector load(const T* p, int64_t count) {
    T padded[kWidth] = {};
    for (int64_t i = 0; i < count; ++i) padded[i] = p[i];
    return load(padded);
  }

  // Rounds to nearest, ties to even. A NaN keeps its upper half and stays a NaN.
  PYG_BATCHGNN_INLINE __m128i to_bfloat16(Vector v) {
    const __m256i word = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(word, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(word, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }

  PYG_BATCHGNN_INLINE void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  PYG_BATCHGNN_INLINE void store(Bfloat16* p, Vector v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bfloat16(v));
  }
  PYG_BATCHGNN_INLINE void store(float* p, Vector v, int64_t count) {
    _mm256_maskstore_ps(p, first(count), v);
  }
  PYG_BATCHGNN_INLINE void store(Bfloat16* p, Vector v, int64_t count) {
    Bfloat16 all[kWidth];
    store(all, v);
    for (int64_t i = 0; i < count; ++i) p[i] = all[i];
  }
  // The bits of bfloat16 in 32 bits each; v holds no NaN.
  PYG_BATCHGNN_INLINE __m256i round_numbers(Vector v) {
    const __m256i word = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(word, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_srli_epi32(sum, 16);
  }
  PYG_BATCHGNN_INLINE void store_pair(float* p, Vector a, Vector b) { store(p, a), store(p + kWidth, b); }
  PYG_BATCHGNN_INLINE void store_pair(Bfloat16* p, Vector a, Vector b) {
    const __m256i pairs = _mm256_packus_epi32(round_numbers(a), round_numbers(b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(pairs, 0xD8));
  }
  PYG_BATCHGNN_INLINE void stream(float* p, Vector v) { _mm256_stream_ps(p, v); }
  PYG_BATCHGNN_INLINE void stream(Bfloat16* p, Vector v) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), to_bfloat16(v));
  }

  PYG_BATCHGNN_INLINE float sum(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  // Adds in the order of `sum`.
  PYG_BATCHGNN_INLINE void sum4(const __m256* v, float* out) {
    const __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20), _mm256_permute2f128_ps(v[0], v[1], 0x31));
    const __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20), _mm256_permute2f128_ps(v[2], v[3], 0x31));
    const __m256 both = _mm256_add_ps(_mm256_unpacklo_ps(ab, cd), _mm256_unpackhi_ps(ab, cd));
    const __m128 ac = _mm256_castps256_ps128(both), bd = _mm256_extractf128_ps(both, 1);
    _mm_storeu_ps(out, _mm_add_ps(_mm_unpacklo_ps(ac, bd), _mm_unpackhi_ps(ac, bd)));
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
  static constexpr int kWidth = 4;
  static constexpr int kRegisters = 16;
  static constexpr int kTileVectors = 2;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 4;
  static constexpr int kTwoRowVectors = 6;

  PYG_BATCHGNN_INLINE __m256i first(int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }

  PYG_BATCHGNN_INLINE Vector zero() { return _mm256_setzero_pd(); }
  PYG_BATCHGNN_INLINE Vector fill(double value) { return _mm256_set1_pd(value); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  PYG_BATCHGNN_INLINE Vector multiply(Vector a, Vector b) { return _mm256_mul_pd(a, b); }
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
  PYG_BATCHGNN_INLINE Vector load(const double* p) { return _mm256_loadu_pd(p); }
  PYG_BATCHGNN_INLINE Vector load(const double* p, int64_t count) {
    return _mm256_maskload_pd(p, first(count));
  }
  PYG_BATCHGNN_INLINE void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  PYG_BATCHGNN_INLINE void store(double* p, Vector v, int64_t count) {
    _mm256_maskstore_pd(p, first(count), v);
  }
  PYG_BATCHGNN_INLINE void stream(double* p, Vector v) { _mm256_stream_pd(p, v); }
  PYG_BATCHGNN_INLINE double sum(__m256d v) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
  PYG_BATCHGNN_INLINE void sum4(const __m256d* v, double* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
};

// Keeps the compiler from loading again for each use.
template <class Vector>
PYG_BATCHGNN_INLINE Vector in_register(Vector value) {
  asm("" : "+v"(value));
  return value;
}

// Returns bits of the columns 4 * word to 4 * word + 63 of a row that dropout keeps. The
// probability of dropping must not be 0.
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

PYG_BATCHGNN_INLINE void stream_lines(const void* from, int64_t bytes, void* to) {
  for (int64_t at = 0; at < bytes; at += 32) {
    const auto* line = reinterpret_cast<const __m256i*>(static_cast<const char*>(from) + at);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(static_cast<char*>(to) + at), _mm256_loadu_si256(line));
  }
}

PYG_BATCHGNN_INLINE void fence() { _mm_sfence(); }
