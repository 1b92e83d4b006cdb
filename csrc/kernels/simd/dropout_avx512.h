// The decisions of dropout with AVX-512. Included inside a level, so it includes nothing.

// The SplitMix64 finaliser of kernels/random.h, on eight words.
PYG_BATCHGNN_INLINE __m512i mix8(__m512i z) {
  z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 30));
  z = _mm512_mullo_epi64(z, _mm512_set1_epi64(static_cast<int64_t>(0xBF58476D1CE4E5B9u)));
  z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 27));
  z = _mm512_mullo_epi64(z, _mm512_set1_epi64(static_cast<int64_t>(0x94D049BB133111EBu)));
  return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
}

// Returns bits of the columns 4 * word to 4 * word + 63 of a row that dropout keeps. The
// probability of dropping must not be 0.
PYG_BATCHGNN_INLINE uint64_t kept_columns(const Dropout& dropout, uint64_t row_key, int64_t word) {
  const __m512i gamma = _mm512_set1_epi64(static_cast<int64_t>(kGamma));
  const __m512i steps = _mm512_mullo_epi64(_mm512_set_epi64(8, 7, 6, 5, 4, 3, 2, 1), gamma);
  const __m512i levels = _mm512_set1_epi16(static_cast<int16_t>(dropout.kept_levels));
  const uint64_t base = row_key + static_cast<uint64_t>(word) * kGamma;
  const __m512i low = mix8(_mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(base)), steps));
  const __m512i high =
      mix8(_mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(base + 8 * kGamma)), steps));
  return static_cast<uint64_t>(_mm512_cmplt_epu16_mask(low, levels)) |
         static_cast<uint64_t>(_mm512_cmplt_epu16_mask(high, levels)) << 32;
}
