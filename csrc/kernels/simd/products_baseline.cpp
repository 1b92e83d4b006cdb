#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/simd/products_levels.h"

namespace pyg_batchgnn::products_baseline {

#define PYG_BATCHGNN_INLINE __attribute__((always_inline)) static inline

template <class Vector>
PYG_BATCHGNN_INLINE Vector in_register(Vector value) {
  return value;
}

// 16 bytes, which the compiler maps to whatever vectors the processor has.
template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr int64_t kWidth = 16 / sizeof(T);
  static constexpr int kTileVectors = 2;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 4;
  static constexpr int kTwoRowVectors = 6;
  PYG_BATCHGNN_INLINE Vector zero() { return Vector{}; }
  PYG_BATCHGNN_INLINE Vector all(T value) { return Vector{} + value; }
  PYG_BATCHGNN_INLINE Vector load(const T* from) {
    Vector a;
    std::memcpy(&a, from, sizeof(a));
    return a;
  }
  PYG_BATCHGNN_INLINE void store(T* to, Vector a) { std::memcpy(to, &a, sizeof(a)); }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return a + b; }
  PYG_BATCHGNN_INLINE Vector times(Vector a, Vector b) { return a * b; }
  PYG_BATCHGNN_INLINE Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
  PYG_BATCHGNN_INLINE uint64_t passing(Vector a) {
    uint64_t bits = 0;
    for (int64_t i = 0; i < kWidth; ++i) bits |= static_cast<uint64_t>(!(a[i] <= 0)) << i;
    return bits;
  }
  PYG_BATCHGNN_INLINE uint64_t nonzero(Vector a) {
    uint64_t bits = 0;
    for (int64_t i = 0; i < kWidth; ++i) bits |= static_cast<uint64_t>(a[i] != 0) << i;
    return bits;
  }
  PYG_BATCHGNN_INLINE Vector keep(Vector a, uint64_t bits) {
    for (int64_t i = 0; i < kWidth; ++i) a[i] = (bits >> i & 1) != 0 ? a[i] : 0;
    return a;
  }
};

// Powers of two move the exponent from its place in 16 bits to its place in 32; exact, subnormals included.
PYG_BATCHGNN_INLINE void read_half(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::bit_cast<float>(static_cast<uint32_t>(from[i] & 0x7FFF) << 13) * 0x1p112f;
    const uint32_t special = magnitude >= 65536.0f ? 0x7F800000u : 0;
    const uint32_t sign = static_cast<uint32_t>(from[i] & 0x8000) << 16;
    to[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | special | sign);
  }
}

// Whether dropout keeps columns 4 * word to 4 * word + 63 of a row.
PYG_BATCHGNN_INLINE uint64_t kept_columns(const Dropout& dropout, uint64_t row_key, int64_t word) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < 16; ++i) {
    const uint64_t random = dropout_word(row_key, word + i);
    for (int64_t c = 0; c < 4; ++c) {
      const uint64_t level = (random >> (16 * c)) & (kDropoutLevels - 1);
      bits |= static_cast<uint64_t>(level < dropout.kept_levels) << (4 * i + c);
    }
  }
  return bits;
}

PYG_BATCHGNN_INLINE void stream(const void* from, int64_t bytes, void* to) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

PYG_BATCHGNN_INLINE void fence() {}

#include "kernels/simd/products_body.h"

}  // namespace pyg_batchgnn::products_baseline
