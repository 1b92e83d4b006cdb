// IEEE binary16, a storage type of feature tables. Kernels read it as float and never write it.
#pragma once

#include <bit>
#include <cstdint>

namespace pyg_batchgnn {

struct Half {
  uint16_t bits;
};

// Scaling by a power of two moves the exponent to its place and makes subnormal numbers normal.
inline float widen(Half value) {
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7FFFu) << 13;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const bool finite = magnitude < 0x0F800000u;
  const auto bits =
      finite ? std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) : magnitude | 0x7F800000u;
  return std::bit_cast<float>(bits | sign);
}

}  // namespace pyg_batchgnn
