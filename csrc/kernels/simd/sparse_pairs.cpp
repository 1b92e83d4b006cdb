#include "kernels/simd/sparse_pairs.h"

#include "kernels/simd/level.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

PYG_BATCHGNN_BEGIN_LEVEL(PYG_BATCHGNN_AVX512)

namespace pyg_batchgnn {
namespace {

__attribute__((always_inline)) inline __mmask32 first_of(int64_t count) {
  return count >= kFold ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

__attribute__((always_inline)) inline __mmask32 kept(const MaskedPairs& g, int64_t row, int64_t column) {
  const __mmask32 inside = first_of(g.columns - column);
  if (g.mask == nullptr) return inside;
  const uint8_t* const bytes = g.mask + row * g.mask_stride + column / 8;
  __mmask32 bits = 0;
  if (g.columns - column >= kFold) {
    __builtin_memcpy(&bits, bytes, sizeof(bits));
    return bits;
  }
  for (int64_t byte = 0; 8 * byte < g.columns - column; ++byte) {
    bits |= static_cast<__mmask32>(bytes[byte]) << 8 * byte;
  }
  return bits & inside;
}

}  // namespace

void mask_pairs(const MaskedPairs& g) {
  for (int64_t row = 0; row < kListTerms; ++row) {
    uint16_t* const out = g.out + row * g.out_stride;
    const uint16_t* const grad = g.grad + row * g.grad_stride;
    for (int64_t at = 0; at < g.out_stride; at += kFold) {
      const __mmask32 bits = row < g.rows && at < g.columns ? kept(g, row, at) : 0;
      _mm512_storeu_si512(out + at, _mm512_maskz_loadu_epi16(bits, grad + at));
    }
  }
}

}  // namespace pyg_batchgnn

PYG_BATCHGNN_END_LEVEL
PYG_BATCHGNN_BEGIN_LEVEL(PYG_BATCHGNN_AVX512_BF16_VBMI2)

namespace pyg_batchgnn::sparse_pairs {
namespace {

constexpr int64_t kWidth = 16;  // sums of a vector
// Rows of a table lie on different pages, and a prefetch waits for the translation of its page, so
// several rows are fetched at once. With four lines per row the last rows of a block of the first
// layer would not be fetched.
constexpr int64_t kLinesPerRow = 5, kRowsAtOnce = 8;

__attribute__((always_inline)) inline __m512bh bits_of(__m512i pairs) {
  return reinterpret_cast<__m512bh>(pairs);
}

// Keeps the compiler from loading again for each use. The loop is bound by loads.
__attribute__((always_inline)) inline __m512i in_register(__m512i value) {
  asm("" : "+v"(value));
  return value;
}

// Transposes squares of eight by eight within the four parts of eight vectors, then stores each
// part in the row of its column.
__attribute__((always_inline)) inline void transpose_eight(const uint16_t* from, int64_t stride,
                                                           uint16_t* to) {
  __m512i a[8], b[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) a[r] = _mm512_loadu_si512(from + r * stride);
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    b[2 * r] = _mm512_unpacklo_epi16(a[2 * r], a[2 * r + 1]);
    b[2 * r + 1] = _mm512_unpackhi_epi16(a[2 * r], a[2 * r + 1]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r) {
    a[4 * r] = _mm512_unpacklo_epi32(b[4 * r], b[4 * r + 2]);
    a[4 * r + 1] = _mm512_unpackhi_epi32(b[4 * r], b[4 * r + 2]);
    a[4 * r + 2] = _mm512_unpacklo_epi32(b[4 * r + 1], b[4 * r + 3]);
    a[4 * r + 3] = _mm512_unpackhi_epi32(b[4 * r + 1], b[4 * r + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i columns[2] = {_mm512_unpacklo_epi64(a[c], a[c + 4]), _mm512_unpackhi_epi64(a[c], a[c + 4])};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      uint16_t* const out = to + (2 * c + i) * kListTerms;
      const auto put = [&](int64_t part, __m128i eight) __attribute__((always_inline)) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8 * part * kListTerms), eight);
      };
      put(0, _mm512_castsi512_si128(columns[i]));
      put(1, _mm512_extracti64x2_epi64(columns[i], 1));
      put(2, _mm512_extracti64x2_epi64(columns[i], 2));
      put(3, _mm512_extracti64x2_epi64(columns[i], 3));
    }
  }
}

void transpose(const uint16_t* from, int64_t stride, int64_t columns, uint16_t* to) {
  for (int64_t column = 0; column < columns; column += kFold) {
    for (int64_t row = 0; row < kListTerms; row += 8) {
      transpose_eight(from + row * stride + column, stride, to + column * kListTerms + row);
    }
  }
}

__m512i numbers() {
  alignas(64) uint8_t all[kListTerms];
  for (int64_t i = 0; i < kListTerms; ++i) all[i] = static_cast<uint8_t>(i);
  return _mm512_load_si512(all);
}

void list(const ListedRows& rows, const PairLists& lists) {
  const __m512i all = numbers(), magnitude = _mm512_set1_epi16(0x7FFF);
  const __m512bh ones = bits_of(_mm512_set1_epi16(0x3F80));
  const __mmask32 low_bits = first_of(rows.terms),
                  high_bits = first_of(std::max<int64_t>(0, rows.terms - 32));
  int64_t at = 0;
  lists.starts[0] = 0;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const uint16_t* const values = rows.values + r * rows.stride;
    const __m512i low = _mm512_maskz_loadu_epi16(low_bits, values);
    const __m512i high = _mm512_maskz_loadu_epi16(high_bits, values + 32);
    if (rows.totals != nullptr) {
      __m512 total = rows.add ? _mm512_loadu_ps(rows.totals + r * kWidth) : _mm512_setzero_ps();
      total = _mm512_dpbf16_ps(_mm512_dpbf16_ps(total, bits_of(low), ones), bits_of(high), ones);
      _mm512_storeu_ps(rows.totals + r * kWidth, total);
    }
    const uint32_t in_low = _mm512_test_epi16_mask(low, magnitude);
    const uint32_t in_high = _mm512_test_epi16_mask(high, magnitude);
    const int count_low = std::popcount(in_low), count = count_low + std::popcount(in_high);
    _mm512_storeu_si512(lists.values + at, _mm512_maskz_compress_epi16(in_low, low));
    _mm512_storeu_si512(lists.values + at + count_low, _mm512_maskz_compress_epi16(in_high, high));
    const uint64_t both = in_low | static_cast<uint64_t>(in_high) << 32;
    _mm512_storeu_si512(lists.terms + at, _mm512_maskz_compress_epi8(both, all));
    at += count;
    lists.terms[at] = kListTerms;
    lists.values[at] = 0;
    at += count & 1;
    lists.starts[r + 1] = static_cast<int32_t>(at);
  }
}

// Rows are short, so a call of memcpy would cost more than the copy. The last vector overlaps the
// one before. With masked stores, which fold loads, a backward pass took a fifth longer.
void copy(const uint16_t* from, int64_t count, uint16_t* to) {
  if (count < kFold) {
    const __mmask32 here = first_of(count);
    return _mm512_mask_storeu_epi16(to, here, _mm512_maskz_loadu_epi16(here, from));
  }
  for (int64_t at = 0; at < count; at += kFold) {
    const int64_t first = std::min(at, count - kFold);
    _mm512_storeu_si512(to + first, _mm512_loadu_si512(from + first));
  }
}

void fold(uint16_t* rows, int64_t elements) {
  const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
  for (int64_t at = 0; at < elements; at += kFold) {
    _mm512_storeu_si512(rows + at, _mm512_permutexvar_epi64(order, _mm512_loadu_si512(rows + at)));
  }
}

// Adds to the first eight sums of a vector; the others are undefined.
__attribute__((always_inline)) inline __m512 add_eight(__m512 sum, __m512i pair, const uint16_t* first,
                                                       const uint16_t* second) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  return _mm512_castps256_ps512(_mm256_dpbf16_ps(_mm512_castps512_ps256(sum),
                                                 reinterpret_cast<__m256bh>(_mm512_castsi512_si256(pair)),
                                                 reinterpret_cast<__m256bh>(_mm256_unpacklo_epi16(a, b))));
}

// One row after the other, with all C vectors of it in registers. With `Half` only eight columns of
// the last vector count, so half a load is enough.
template <int C, bool Half>
void multiply_columns(const ListProduct& p) {
  constexpr int kFolds = (C + 1) / 2;
  for (int64_t r = 0; r < p.rows; ++r) {
    if (r % kRowsAtOnce == 0) p.prefetch->fetch(kRowsAtOnce * kLinesPerRow);
    int64_t at = p.lists.starts[r];
    const int64_t end = p.lists.starts[r + 1];
    if (at == end && p.add) continue;
    float* const out = p.out + r * p.out_stride;
    __m512 sum[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum[c] = p.add ? _mm512_loadu_ps(out + c * kWidth) : _mm512_setzero_ps();
    // The sums of the next row come from the second cache.
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) __builtin_prefetch(out + p.out_stride + c * kWidth);
    for (; at < end; at += 2) {
      uint16_t terms;
      __builtin_memcpy(&terms, p.lists.terms + at, sizeof(terms));
      const uint16_t* const first = p.x + (terms & 0xFF) * p.x_stride;
      const uint16_t* const second = p.x + (terms >> 8) * p.x_stride;
      int32_t pair;
      __builtin_memcpy(&pair, p.lists.values + at, sizeof(pair));
      const __m512i factor = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int f = 0; f < kFolds; ++f) {
        if (Half && f + 1 == kFolds) {
          sum[2 * f] = add_eight(sum[2 * f], factor, first + f * kFold, second + f * kFold);
          continue;
        }
        const __m512i a = in_register(_mm512_loadu_si512(first + f * kFold));
        const __m512i b = in_register(_mm512_loadu_si512(second + f * kFold));
        sum[2 * f] = _mm512_dpbf16_ps(sum[2 * f], bits_of(factor), bits_of(_mm512_unpacklo_epi16(a, b)));
        if (2 * f + 1 == C) continue;
        sum[2 * f + 1] =
            _mm512_dpbf16_ps(sum[2 * f + 1], bits_of(factor), bits_of(_mm512_unpackhi_epi16(a, b)));
      }
    }
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(out + c * kWidth, sum[c]);
  }
}

template <bool Half, int... C>
constexpr auto table_of(std::integer_sequence<int, C...>) {
  // Half of a vector is left over only if it begins a fold.
  return std::array<void (*)(const ListProduct&), sizeof...(C)>{&multiply_columns < C + 1,
                                                                Half && C % 2 == 0 > ...};
}

void multiply(const ListProduct& p) {
  static constexpr auto kAll = std::make_integer_sequence<int, kMostPairVectors>{};
  static constexpr auto kWhole = table_of<false>(kAll), kHalf = table_of<true>(kAll);
  const auto last = static_cast<size_t>((p.columns - 1) / kWidth);
  const bool half = p.columns - static_cast<int64_t>(last) * kWidth <= kWidth / 2;
  (half ? kHalf : kWhole)[last](p);
}

void round_rows(const float* from, int64_t count, float scale, uint16_t* to) {
  const __m512 by = _mm512_set1_ps(scale);
  for (int64_t at = 0; at < count; at += kWidth) {
    const auto here = static_cast<__mmask16>(first_of(std::min(kWidth, count - at)));
    const __m512 values = _mm512_mul_ps(_mm512_maskz_loadu_ps(here, from + at), by);
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values));
    _mm256_mask_storeu_epi16(to + at, here, rounded);
  }
}

constexpr SparsePairKernels kKernels{&transpose, &list, &copy, &fold, &multiply, &round_rows};

}  // namespace
}  // namespace pyg_batchgnn::sparse_pairs

PYG_BATCHGNN_END_LEVEL

namespace pyg_batchgnn {

const SparsePairKernels* sparse_pair_kernels() {
  static const bool has =
      most_bfloat16_level() >= Bfloat16Level::kPairs && __builtin_cpu_supports("avx512vbmi2");
  return has ? &sparse_pairs::kKernels : nullptr;
}

}  // namespace pyg_batchgnn

#else

namespace pyg_batchgnn {

void mask_pairs(const MaskedPairs&) {}

const SparsePairKernels* sparse_pair_kernels() { return nullptr; }

}  // namespace pyg_batchgnn

#endif
