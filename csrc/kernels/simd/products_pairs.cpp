// Products of bfloat16 with the instructions for them: two terms at a time, summed in float32.

#include "kernels/simd/level.h"
#include "kernels/simd/products.h"

#if defined(__x86_64__)

PYG_BATCHGNN_BEGIN_LEVEL(PYG_BATCHGNN_AVX512_BF16)

namespace pyg_batchgnn::products_pairs {
namespace {

constexpr int64_t kWidth = 16;
constexpr int64_t kLinesPerTile = 24;

__attribute__((always_inline)) inline __m512bh bits_of(__m512i pairs) {
  return reinterpret_cast<__m512bh>(pairs);
}

// A tile of kTileRows x C vectors, in registers from the first pair of terms to the last.
template <int C>
void tile(const PairProduct& p, const uint32_t* x, float* out) {
  __m512 sum[kTileRows][C];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sum[r][c] = p.add ? _mm512_loadu_ps(out + r * p.out_stride + c * kWidth) : _mm512_setzero_ps();
    }
  }
  const uint32_t *v0 = p.values[0], *v1 = p.values[1], *v2 = p.values[2], *v3 = p.values[3],
                 *v4 = p.values[4], *v5 = p.values[5];
  for (int64_t s = 0; s < p.terms; ++s) {
    __m512bh term[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) term[c] = bits_of(_mm512_loadu_si512(x + c * kWidth));
    const __m512i factor[kTileRows] = {
        _mm512_set1_epi32(static_cast<int>(v0[s])), _mm512_set1_epi32(static_cast<int>(v1[s])),
        _mm512_set1_epi32(static_cast<int>(v2[s])), _mm512_set1_epi32(static_cast<int>(v3[s])),
        _mm512_set1_epi32(static_cast<int>(v4[s])), _mm512_set1_epi32(static_cast<int>(v5[s]))};
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], bits_of(factor[r]), term[c]);
    }
    x += p.x_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(out + r * p.out_stride + c * kWidth, sum[r][c]);
  }
}

void dense(const PairProduct& p) {
  p.prefetch->fetch(kLinesPerTile);
  int64_t at = 0;
  for (; at + 4 <= p.vectors; at += 4) tile<4>(p, p.x + at * kWidth, p.out + at * kWidth);
  const uint32_t* const x = p.x + at * kWidth;
  float* const out = p.out + at * kWidth;
  switch (p.vectors - at) {
    case 1:
      return tile<1>(p, x, out);
    case 2:
      return tile<2>(p, x, out);
    case 3:
      return tile<3>(p, x, out);
    default:
      return;
  }
}

// The finish of a product of bfloat16, as in products_body.h, but rounded by the instruction of the
// processor, which takes two vectors and a mask. Like its products it flushes denormals.

#include "kernels/simd/dropout_avx512.h"

constexpr int kVectors = kWordBits / kWidth;

PYG_BATCHGNN_INLINE __m512i rounded(uint64_t bits, __m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_maskz_cvtne2ps_pbh(static_cast<__mmask32>(bits), high, low));
}

PYG_BATCHGNN_INLINE void put(__m512i line, bool stream, char* to) {
  if (stream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  } else {
    _mm512_storeu_si512(to, line);
  }
}

// One word of columns of all rows.
void finish_word(const Finish<float>& f, int64_t at) {
  const __m512 zero = _mm512_setzero_ps();
  const __m512 scale = _mm512_set1_ps(f.dropout != nullptr ? static_cast<float>(f.dropout->scale()) : 1.0f);
  __m512 bias[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    bias[v] = f.bias != nullptr ? _mm512_loadu_ps(f.bias + at + v * kWidth) : zero;
  }
  const int64_t first = f.first_column + at;
  for (int64_t row = 0; row < f.rows; ++row) {
    const float* const raw = f.raw + row * f.raw_stride + at;
    char* const out = static_cast<char*>(f.out) + (row * f.out_stride + at) * 2;
    __m512 value[kVectors];
    uint64_t passing = 0;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = _mm512_add_ps(_mm512_loadu_ps(raw + v * kWidth), bias[v]);
      passing |= static_cast<uint64_t>(_mm512_cmp_ps_mask(value[v], zero, _CMP_NLE_UQ)) << v * kWidth;
      value[v] = _mm512_mul_ps(value[v], scale);
    }
    uint64_t bits = f.relu ? passing : ~uint64_t{0};
    if (f.dropout != nullptr) {
      bits &= kept_columns(*f.dropout, f.row_keys[row], first / kDropoutColumnsPerWord);
    }
    if (f.mask != nullptr) __builtin_memcpy(f.mask + row * f.mask_stride + first / 8, &bits, sizeof(bits));
    const bool stream = f.stream && reinterpret_cast<uintptr_t>(out) % PrefetchQueue::kLine == 0;
    put(rounded(bits, value[0], value[1]), stream, out);
    put(rounded(bits >> 2 * kWidth, value[2], value[3]), stream, out + PrefetchQueue::kLine);
  }
}

void finish(const Finish<float>& f) {
  for (int64_t at = 0; at < f.columns; at += kWordBits) finish_word(f, at);
}

constexpr PairKernels kKernels{&dense, &finish};

}  // namespace
}  // namespace pyg_batchgnn::products_pairs

PYG_BATCHGNN_END_LEVEL

namespace pyg_batchgnn {

const PairKernels* pair_kernels() {
  return most_bfloat16_level() >= Bfloat16Level::kPairs ? &products_pairs::kKernels : nullptr;
}

}  // namespace pyg_batchgnn

#else

namespace pyg_batchgnn {

const PairKernels* pair_kernels() { return nullptr; }

}  // namespace pyg_batchgnn

#endif
