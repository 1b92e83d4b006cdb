// The softmax over the edges of a destination, forward and backward, for all heads. Arrays are
// [edges, heads] and have room for one more vector.

// Returns exp(x) for x <= 0 with a relative error of 1e-7: 2^n exp(r) with |r| <= ln(2) / 2 and the
// Taylor series of r. It is 0 below the smallest normal number; a NaN stays a NaN. The compiler can
// vectorise a loop over it.
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

// kHeads numbers side by side, which the compiler handles as one vector.
template <class Sum, int kHeads>
struct Side {
  typedef Sum Vector __attribute__((vector_size(kHeads * sizeof(Sum))));
};

template <class Sum>
struct Side<Sum, 1> {
  using Vector = Sum;
};

// Vectors are not passed by value, because calling conventions differ between levels.
template <class Vector, class Sum>
inline void read(const Sum* from, Vector& to) {
  __builtin_memcpy(&to, from, sizeof(to));
}

template <class Vector, class Sum>
inline void write(const Vector& from, Sum* to) {
  __builtin_memcpy(to, &from, sizeof(from));
}

// Applies the leaky ReLU to some heads of [count, stride] logits and subtracts their maximum.
template <class Vector, class Sum>
inline void shift_logits(const Sum* logits, int64_t count, int64_t stride, Sum slope, Sum* weights) {
  Vector value, top = Vector{} - std::numeric_limits<Sum>::infinity();
  for (int64_t at = 0; at < count * stride; at += stride) {
    read(logits + at, value);
    value = value > 0 ? value : slope * value;
    top = value > top ? value : top;
    write(value, weights + at);
  }
  for (int64_t at = 0; at < count * stride; at += stride) {
    read(weights + at, value);
    value -= top;
    write(value, weights + at);
  }
}

template <class Vector, class Sum>
inline void divide_by_total(int64_t count, int64_t stride, Sum* weights) {
  Vector weight, total{};
  for (int64_t at = 0; at < count * stride; at += stride) {
    read(weights + at, weight);
    total += weight;
  }
  const Vector inverse = 1 / total;
  for (int64_t at = 0; at < count * stride; at += stride) {
    read(weights + at, weight);
    weight *= inverse;
    write(weight, weights + at);
  }
}

template <class Vector, class Sum>
inline void softmax_grad_of(const Sum* signed_weights, int64_t count, int64_t stride, Sum slope, Sum* grads,
                            Sum* totals) {
  Vector weight, grad, along{}, total{};
  for (int64_t at = 0; at < count * stride; at += stride) {
    read(signed_weights + at, weight);
    read(grads + at, grad);
    along += (weight < 0 ? -weight : weight) * grad;
  }
  for (int64_t at = 0; at < count * stride; at += stride) {
    read(signed_weights + at, weight);
    read(grads + at, grad);
    grad = (weight < 0 ? -weight : weight) * (grad - along);
    grad = weight < 0 ? slope * grad : grad;
    total += grad;
    write(grad, grads + at);
  }
  write(total, totals);
}

// Calls body.of<Vector>(h) for groups of 4, 2 or 1 heads.
template <class Sum, class Body>
inline void by_heads(int64_t heads, const Body& body) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) body.template of<typename Side<Sum, 4>::Vector>(h);
  for (; h + 2 <= heads; h += 2) body.template of<typename Side<Sum, 2>::Vector>(h);
  if (h < heads) body.template of<Sum>(h);
}

template <class Sum>
struct ShiftLogits {
  const Sum* logits;
  int64_t count, heads;
  Sum slope, *weights;
  template <class Vector>
  void of(int64_t h) const {
    shift_logits<Vector>(logits + h, count, heads, slope, weights + h);
  }
};

template <class Sum>
struct DivideByTotal {
  int64_t count, heads;
  Sum* weights;
  template <class Vector>
  void of(int64_t h) const {
    divide_by_total<Vector>(count, heads, weights + h);
  }
};

template <class Sum>
struct SoftmaxGrad {
  const Sum* signed_weights;
  int64_t count, heads;
  Sum slope, *grads, *totals;
  template <class Vector>
  void of(int64_t h) const {
    softmax_grad_of<Vector>(signed_weights + h, count, heads, slope, grads + h, totals + h);
  }
};

// Sets weights to the softmax of the leaky ReLU of the logits.
template <class Sum>
inline void softmax(const Sum* logits, int64_t count, int64_t heads, Sum slope, Sum* weights) {
  by_heads<Sum>(heads, ShiftLogits<Sum>{logits, count, heads, slope, weights});
  // Whole vectors without a rest. Entries behind the end are not read.
  const int64_t all = padded(count * heads);
  for (int64_t i = 0; i < all; ++i) weights[i] = exp_negative(weights[i]);
  by_heads<Sum>(heads, DivideByTotal<Sum>{count, heads, weights});
}

// signed_weights: the softmax, negative where the leaky ReLU has its slope. grads: the gradient of
// the softmax on entry, of the logits before the leaky ReLU on return. totals [heads]: the sums of
// the latter.
template <class Sum>
inline void softmax_grad(const Sum* signed_weights, int64_t count, int64_t heads, Sum slope, Sum* grads,
                         Sum* totals) {
  by_heads<Sum>(heads, SoftmaxGrad<Sum>{signed_weights, count, heads, slope, grads, totals});
}
