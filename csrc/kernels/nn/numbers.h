// Kinds of floating-point numbers that feature tables hold, and what a kernel computes with.
#pragma once

#include <cstdint>
#include <type_traits>

namespace pyg_batchgnn {

enum class Number : int { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kFloat64 = 3 };

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

// Sums are taken in float32; in float64 for float64.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(BFloat16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

// The exponent is moved by a multiplication, which also makes subnormal numbers right; what comes out at 2^16
// or above was infinite or not a number.
inline float widen(Half value) {
  const uint32_t shifted = static_cast<uint32_t>(value.bits & 0x7FFFu) << 13;
  uint32_t bits = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, shifted) * 0x1p112f);
  if (bits >= 0x47800000u) bits |= 0x7F800000u;
  return __builtin_bit_cast(float, bits | static_cast<uint32_t>(value.bits & 0x8000u) << 16);
}

inline void narrow(float value, float* out) { *out = value; }
inline void narrow(double value, double* out) { *out = value; }

// To the nearest, ties to even; NaN stays NaN.
inline void narrow(float value, BFloat16* out) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  out->bits = static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}

inline void narrow(float value, Half* out) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t half;
  if (magnitude >= 0x47800000u) {  // 2^16 and above, infinite, NaN
    half = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: the sum's last bit is that of the smallest half
    half = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3F000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  out->bits = static_cast<uint16_t>(half | (bits & 0x80000000u) >> 16);
}

}  // namespace pyg_batchgnn
