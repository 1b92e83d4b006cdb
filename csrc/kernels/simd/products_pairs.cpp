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

}  // namespace

void (*kernel())(const PairProduct&) { return &dense; }

}  // namespace pyg_batchgnn::products_pairs

PYG_BATCHGNN_END_LEVEL

namespace pyg_batchgnn {

PairKernel pair_kernel() {
  static const bool has = simd_level() == Simd::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return has ? products_pairs::kernel() : nullptr;
}

}  // namespace pyg_batchgnn

#else

namespace pyg_batchgnn {

PairKernel pair_kernel() { return nullptr; }

}  // namespace pyg_batchgnn

#endif
