// bfloat16, the upper half of a float32. Kernels read it as float and round when they write.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace pyg_batchgnn {

struct Bfloat16 {
  uint16_t bits;
};

// The type in which values of T are computed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(Bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

template <class T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    // Rounds to nearest, ties to even. A NaN keeps its upper half and stays a NaN.
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = word + 0x7FFFu + ((word >> 16) & 1u);
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    return {static_cast<uint16_t>((is_nan ? word | 0x400000u : rounded) >> 16)};
  } else {
    return value;
  }
}

}  // namespace pyg_batchgnn
