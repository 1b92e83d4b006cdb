#include "kernels/simd/activation.h"

#include <cstring>

#define PYG_BATCHGNN_BODY "kernels/simd/activation_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

void dropout_draws(uint64_t row_key, int64_t columns, uint16_t* draws) {
  PYG_BATCHGNN_DISPATCH(dropout_draws(row_key, columns, draws))
}

void dropout_passes(const uint16_t* draws, uint32_t kept_levels, int64_t columns, uint8_t* pass) {
  PYG_BATCHGNN_DISPATCH(dropout_passes(draws, kept_levels, columns, pass))
}

template <class T>
void relu_passes(const T* x, int64_t columns, uint8_t* pass) {
  PYG_BATCHGNN_DISPATCH(relu_passes(x, columns, pass))
}

template <class T>
void select_scaled(const T* x, const uint8_t* pass, Wide<T> scale, int64_t columns, T* y) {
  PYG_BATCHGNN_DISPATCH(select_scaled(x, pass, scale, columns, y))
}

template void relu_passes(const float* x, int64_t columns, uint8_t* pass);
template void select_scaled(const float* x, const uint8_t* pass, float scale, int64_t columns, float* y);
template void relu_passes(const double* x, int64_t columns, uint8_t* pass);
template void select_scaled(const double* x, const uint8_t* pass, double scale, int64_t columns, double* y);
template void relu_passes(const Bfloat16* x, int64_t columns, uint8_t* pass);
template void select_scaled(const Bfloat16* x, const uint8_t* pass, float scale, int64_t columns,
                            Bfloat16* y);

// Packs eight bytes of 0 or 1 into the bits of one byte: the product moves byte i to bit 56 + i,
// without collisions.
constexpr uint64_t kGatherBits = 0x0102040810204080u;

void pack_bits(const uint8_t* pass, int64_t columns, uint8_t* bits) {
  for (int64_t c = 0; c < columns; c += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, pass + c, sizeof(bytes));
    bits[c / 8] = static_cast<uint8_t>((bytes * kGatherBits) >> 56);
  }
}

// Byte i of a word keeps bit i alone.
void unpack_bits(const uint8_t* bits, int64_t columns, uint8_t* pass) {
  for (int64_t c = 0; c < columns; c += 8) {
    const uint64_t bytes = (bits[c / 8] * 0x0101010101010101u) & 0x8040201008040201u;
    std::memcpy(pass + c, &bytes, sizeof(bytes));
  }
}

}  // namespace pyg_batchgnn
