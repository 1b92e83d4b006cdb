#include "kernels/simd/activation.h"

#include <cstring>

#include "kernels/dropout.h"
#include "kernels/simd/dispatch.h"

namespace pyg_batchgnn {
namespace {

#define PYG_BATCHGNN_BODY __attribute__((always_inline)) inline

PYG_BATCHGNN_BODY void draws_body(uint64_t row_key, int64_t columns, uint16_t* draws) {
  const int64_t words = (columns + kDropoutColumnsPerWord - 1) / kDropoutColumnsPerWord;
  for (int64_t i = 0; i < words; ++i) {
    const uint64_t word = dropout_word(row_key, i);
    std::memcpy(draws + i * kDropoutColumnsPerWord, &word, sizeof(word));
  }
}

PYG_BATCHGNN_BODY void dropout_passes_body(const uint16_t* draws, uint32_t kept_levels, int64_t columns,
                                           uint8_t* pass) {
  const auto last = static_cast<uint16_t>(kept_levels - 1);  // fits 16 bits where all levels are kept, too
  for (int64_t c = 0; c < columns; ++c) pass[c] = draws[c] <= last;
}

template <class T>
PYG_BATCHGNN_BODY void relu_passes_body(const T* x, int64_t columns, uint8_t* __restrict pass) {
  for (int64_t c = 0; c < columns; ++c) pass[c] &= !(widen(x[c]) <= 0);
}

template <class T>
PYG_BATCHGNN_BODY void select_body(const T* x, const uint8_t* __restrict pass, Wide<T> scale, int64_t columns,
                                   T* y) {
#pragma GCC ivdep
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> scaled = widen(x[c]) * scale;
    y[c] = narrow<T>(pass[c] != 0 ? scaled : Wide<T>(0));
  }
}

// Eight bytes of 0 or 1 into the bits of one: the product moves byte i to bit 56 + i, and no two bits meet.
constexpr uint64_t kGatherBits = 0x0102040810204080u;

void pack_body(const uint8_t* pass, int64_t columns, uint8_t* bits) {
  for (int64_t c = 0; c < columns; c += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, pass + c, sizeof(bytes));
    bits[c / 8] = static_cast<uint8_t>((bytes * kGatherBits) >> 56);
  }
}

// Byte i of a word keeps bit i alone.
void unpack_body(const uint8_t* bits, int64_t columns, uint8_t* pass) {
  for (int64_t c = 0; c < columns; c += 8) {
    const uint64_t bytes = (bits[c / 8] * 0x0101010101010101u) & 0x8040201008040201u;
    std::memcpy(pass + c, &bytes, sizeof(bytes));
  }
}

PYG_BATCHGNN_VARIANTS(void, draws_of, draws_body, (uint64_t key, int64_t columns, uint16_t* draws),
                      (key, columns, draws))
PYG_BATCHGNN_VARIANTS(void, passes_of, dropout_passes_body,
                      (const uint16_t* draws, uint32_t kept, int64_t columns, uint8_t* pass),
                      (draws, kept, columns, pass))

}  // namespace

void dropout_draws(uint64_t row_key, int64_t columns, uint16_t* draws) { draws_of(row_key, columns, draws); }

void dropout_passes(const uint16_t* draws, uint32_t kept_levels, int64_t columns, uint8_t* pass) {
  passes_of(draws, kept_levels, columns, pass);
}

void pack_bits(const uint8_t* pass, int64_t columns, uint8_t* bits) { pack_body(pass, columns, bits); }
void unpack_bits(const uint8_t* bits, int64_t columns, uint8_t* pass) { unpack_body(bits, columns, pass); }

#define PYG_BATCHGNN_ACTIVATION(T, suffix)                                                                   \
  namespace {                                                                                                \
  PYG_BATCHGNN_VARIANTS(void, relu_##suffix, relu_passes_body, (const T* x, int64_t columns, uint8_t* pass), \
                        (x, columns, pass))                                                                  \
  PYG_BATCHGNN_VARIANTS(void, select_##suffix, select_body,                                                  \
                        (const T* x, const uint8_t* pass, Wide<T> scale, int64_t columns, T* y),             \
                        (x, pass, scale, columns, y))                                                        \
  }                                                                                                          \
  template <>                                                                                                \
  void relu_passes(const T* x, int64_t columns, uint8_t* pass) {                                             \
    relu_##suffix(x, columns, pass);                                                                         \
  }                                                                                                          \
  template <>                                                                                                \
  void select_scaled(const T* x, const uint8_t* pass, Wide<T> scale, int64_t columns, T* y) {                \
    select_##suffix(x, pass, scale, columns, y);                                                             \
  }

PYG_BATCHGNN_ACTIVATION(float, f32)
PYG_BATCHGNN_ACTIVATION(double, f64)
PYG_BATCHGNN_ACTIVATION(Bfloat16, bf16)

}  // namespace pyg_batchgnn
