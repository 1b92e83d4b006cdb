// Softmax over a destination's edges, forward and backward, for all heads. Arrays are [edges, heads] and have
// room for a whole vector more.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace pyg_batchgnn {
namespace {

// exp(x) for x <= 0, to 1e-7 relative: 2^n exp(r) with |r| <= ln(2) / 2 and Taylor's series of r. 0 below the
// smallest normal number; NaN stays NaN. Written so that the compiler makes vectors of a loop over it.
[[gnu::always_inline]] inline float exp_negative(float x) {
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float bounded = x < -87.0f ? -87.0f : x;
  const float shifted = bounded * kLog2e + kToInteger;
  const float n = shifted - kToInteger;
  const float r = (bounded - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t exponent = (__builtin_bit_cast(uint32_t, shifted) + 127u) << 23;
  const float value = p * __builtin_bit_cast(float, exponent);
  return x < -87.0f ? 0.0f : value;
}

inline double exp_negative(double x) { return __builtin_exp(x); }

constexpr int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }

// What the heads have in common while a destination is computed; each [heads].
template <class Sum>
struct Heads {
  Sum* top;
  Sum* total;
};

// logits: before the leaky ReLU; stays. weights: the softmax.
template <int kHeads, class Sum>
inline void softmax_of(const Sum* logits, int64_t count, int64_t heads, Sum slope, Sum* weights,
                       Heads<Sum> of) {
  const int64_t H = kHeads == 0 ? heads : kHeads;
  for (int64_t h = 0; h < H; ++h) {
    of.top[h] = -std::numeric_limits<Sum>::infinity();
    of.total[h] = 0;
  }
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t h = 0; h < H; ++h) {
      const Sum logit = logits[e * H + h];
      const Sum leaky = logit > 0 ? logit : slope * logit;
      weights[e * H + h] = leaky;
      of.top[h] = leaky > of.top[h] ? leaky : of.top[h];
    }
  }
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t h = 0; h < H; ++h) weights[e * H + h] -= of.top[h];
  }
  // Whole vectors, so that none is left over; what lies behind the end is not read.
  const int64_t all = padded(count * H);
  for (int64_t i = 0; i < all; ++i) weights[i] = exp_negative(weights[i]);
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t h = 0; h < H; ++h) of.total[h] += weights[e * H + h];
  }
  for (int64_t h = 0; h < H; ++h) of.total[h] = 1 / of.total[h];
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t h = 0; h < H; ++h) weights[e * H + h] *= of.total[h];
  }
}

// signed_weights: the softmax, negative where the leaky ReLU has its slope. grads: in, of the softmax; out,
// of the logits before the leaky ReLU. of.total: their sums.
template <int kHeads, class Sum>
inline void softmax_grad_of(const Sum* signed_weights, int64_t count, int64_t heads, Sum slope, Sum* grads,
                            Heads<Sum> of) {
  const int64_t H = kHeads == 0 ? heads : kHeads;
  for (int64_t h = 0; h < H; ++h) of.top[h] = of.total[h] = 0;
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t h = 0; h < H; ++h) {
      const Sum weight = signed_weights[e * H + h];
      of.top[h] += (weight < 0 ? -weight : weight) * grads[e * H + h];
    }
  }
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t h = 0; h < H; ++h) {
      const Sum weight = signed_weights[e * H + h];
      const Sum leaky = (weight < 0 ? -weight : weight) * (grads[e * H + h] - of.top[h]);
      const Sum grad = weight < 0 ? slope * leaky : leaky;
      grads[e * H + h] = grad;
      of.total[h] += grad;
    }
  }
}

#define PYG_BATCHGNN_BY_HEADS(name, ...) \
  switch (heads) {                       \
    case 1:                              \
      return name<1>(__VA_ARGS__);       \
    case 2:                              \
      return name<2>(__VA_ARGS__);       \
    case 4:                              \
      return name<4>(__VA_ARGS__);       \
    case 8:                              \
      return name<8>(__VA_ARGS__);       \
    default:                             \
      return name<0>(__VA_ARGS__);       \
  }

template <class Sum>
inline void softmax(const Sum* logits, int64_t count, int64_t heads, Sum slope, Sum* weights, Heads<Sum> of) {
  PYG_BATCHGNN_BY_HEADS(softmax_of, logits, count, heads, slope, weights, of)
}

template <class Sum>
inline void softmax_grad(const Sum* signed_weights, int64_t count, int64_t heads, Sum slope, Sum* grads,
                         Heads<Sum> of) {
  PYG_BATCHGNN_BY_HEADS(softmax_grad_of, signed_weights, count, heads, slope, grads, of)
}

}  // namespace
}  // namespace pyg_batchgnn
