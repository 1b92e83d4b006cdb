// The loops of attention.h.

#include "kernels/simd/attention_rows_body.h"
#include "kernels/simd/row_parts_body.h"

// Converts a row to another type.
template <class From, class To>
inline void convert_row(const From* from, int64_t count, To* to) {
  vectors_of<Wide<From>>(count, [&](int64_t k, const auto& part) __attribute__((always_inline)) {
    part.store(to + k, part.load(from + k));
  });
}

// Writes a row of whole cache lines past the caches.
template <class T>
inline void stream_row(const T* from, int64_t count, T* to) {
  using L = Lanes<T>;
  for (int64_t k = 0; k < count; k += L::kWidth) L::stream(to + k, L::load(from + k));
}

// Returns the row in the type of the computation: itself, or a copy in `buffer`.
inline const double* widen_row(const void* row, Element, int64_t, double*) {
  return static_cast<const double*>(row);
}

inline const float* widen_row(const void* row, Element type, int64_t count, float* buffer) {
  if (type != Element::kBFloat16) return static_cast<const float*>(row);
  convert_row(static_cast<const Bfloat16*>(row), count, buffer);
  return buffer;
}

inline void narrow_row(const double* row, int64_t count, Element, void* out) {
  convert_row(row, count, static_cast<double*>(out));
}

inline void narrow_row(const float* row, int64_t count, Element type, void* out) {
  if (type == Element::kBFloat16) return convert_row(row, count, static_cast<Bfloat16*>(out));
  convert_row(row, count, static_cast<float*>(out));
}

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

template <class Sum, int kHeads>
using SideBySide = typename Side<Sum, kHeads>::Vector;

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

// One head: its numbers lie side by side and are reduced kWide at a time, in an order that depends
// on their count alone. Entries up to the next multiple of kWide may be overwritten.
constexpr int64_t kWide = 16;

template <class Sum, class Join>
[[gnu::always_inline]] inline Sum reduce_wide(const Sum* from, int64_t count, Sum begin, const Join& join) {
  Sum lane[kWide];
  for (int64_t i = 0; i < kWide; ++i) lane[i] = begin;
  for (int64_t at = 0; at < count; at += kWide) {
    for (int64_t i = 0; i < kWide; ++i) lane[i] = join(lane[i], from[at + i]);
  }
  for (int64_t i = 0; i < 8; ++i) lane[i] = join(lane[i], lane[i + 8]);
  for (int64_t i = 0; i < 4; ++i) lane[i] = join(lane[i], lane[i + 4]);
  return join(join(lane[0], lane[2]), join(lane[1], lane[3]));
}

template <class Sum>
inline void softmax_of_one(const Sum* logits, int64_t count, Sum slope, Sum* weights) {
  constexpr Sum kLeast = -std::numeric_limits<Sum>::infinity();
  const int64_t all = padded(count);
  for (int64_t i = 0; i < all; ++i) weights[i] = logits[i] > 0 ? logits[i] : slope * logits[i];
  for (int64_t i = count; i < all; ++i) weights[i] = kLeast;
  const Sum top = reduce_wide(weights, count, kLeast, [](Sum a, Sum b) { return b > a ? b : a; });
  for (int64_t i = 0; i < all; ++i) weights[i] = exp_negative(weights[i] - top);
  const Sum inverse = 1 / reduce_wide(weights, count, Sum{0}, [](Sum a, Sum b) { return a + b; });
  for (int64_t i = 0; i < all; ++i) weights[i] *= inverse;
}

template <class Sum>
inline void softmax_grad_of_one(const Sum* signed_weights, int64_t count, Sum slope, Sum* grads, Sum* total) {
  Sum lane[kWide] = {};
  const int64_t all = padded(count);
  for (int64_t i = count; i < all; ++i) grads[i] = 0;
  const auto weight = [signed_weights, count](int64_t i) {
    return i >= count ? Sum{0} : signed_weights[i] < 0 ? -signed_weights[i] : signed_weights[i];
  };
  for (int64_t at = 0; at < count; at += kWide) {
    for (int64_t i = 0; i < kWide; ++i) lane[i] += weight(at + i) * grads[at + i];
  }
  const Sum along = reduce_wide(lane, kWide, Sum{0}, [](Sum a, Sum b) { return a + b; });
  for (int64_t i = 0; i < all; ++i) {
    const Sum grad = weight(i) * (grads[i] - along);
    grads[i] = i < count && signed_weights[i] < 0 ? slope * grad : grad;
  }
  *total = reduce_wide(grads, count, Sum{0}, [](Sum a, Sum b) { return a + b; });
}

// Sets weights to the softmax of the leaky ReLU of the logits.
template <class Sum>
inline void softmax(const Sum* logits, int64_t count, int64_t heads, Sum slope, Sum* weights) {
  if (heads == 1) return softmax_of_one(logits, count, slope, weights);
  for_heads(heads, [&](auto many, int64_t h) __attribute__((always_inline)) {
    shift_logits<SideBySide<Sum, many()>>(logits + h, count, heads, slope, weights + h);
  });
  // Whole vectors without a rest. Entries behind the end are not read.
  const int64_t all = padded(count * heads);
  for (int64_t i = 0; i < all; ++i) weights[i] = exp_negative(weights[i]);
  for_heads(heads, [&](auto many, int64_t h) __attribute__((always_inline)) {
    divide_by_total<SideBySide<Sum, many()>>(count, heads, weights + h);
  });
}

// signed_weights: the softmax, negative where the leaky ReLU has its slope. grads: the gradient of
// the softmax on entry, of the logits before the leaky ReLU on return. totals [heads]: the sums of
// the latter.
template <class Sum>
inline void softmax_grad(const Sum* signed_weights, int64_t count, int64_t heads, Sum slope, Sum* grads,
                         Sum* totals) {
  if (heads == 1) return softmax_grad_of_one(signed_weights, count, slope, grads, totals);
  for_heads(heads, [&](auto many, int64_t h) __attribute__((always_inline)) {
    softmax_grad_of<SideBySide<Sum, many()>>(signed_weights + h, count, heads, slope, grads + h, totals + h);
  });
}

// Returns the number of list entries between the prefetch of a row and its use.
inline int64_t rows_ahead(int64_t row_bytes) {
  constexpr int64_t kBytes = 12000;
  const int64_t rows = kBytes / (row_bytes + 1) + 2;
  return rows < kMostRowsAhead ? rows : kMostRowsAhead;
}

inline void prefetch_row(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
}

// The arrays of one destination, cut from the scratch memory of the block.
template <class Sum>
struct Place {
  Sum *logits, *weights, *grads;   // [edges, heads]
  Sum *row, *narrow, *target_row;  // [heads, width], [row_columns], [row_columns]
  Sum *total, *target;             // [heads]

  Place(void* scratch, int64_t longest, const AttentionWeights& of) {
    const int64_t edges = padded(longest * of.heads) + 16, heads = padded(of.heads);
    auto* next = static_cast<Sum*>(scratch);
    const auto take = [&next](int64_t count) {
      Sum* const taken = next;
      next += count;
      return taken;
    };
    logits = take(edges);
    weights = take(edges);
    grads = take(edges);
    total = take(heads);
    target = take(heads);
    row = take(of.heads * of.width());
    narrow = take(of.row_columns);
    target_row = take(of.row_columns);
  }
};

inline int64_t longest_list(const AttentionBlock& block) {
  int64_t longest = 0;
  for (int64_t d = 0; d < block.targets; ++d) {
    const int64_t count = block.begin[d + 1] - block.begin[d];
    longest = count > longest ? count : longest;
  }
  return longest;
}

// One destination of a block.
template <class T>
struct Target {
  int64_t id, begin, count, first_slot, slots;
  const T* const* rows;
  const Wide<T>* const* edges;  // if there are rows of edges
  const int32_t* place;

  Target(const AttentionBlock& block, int64_t d)
      : id(block.first + d),
        begin(block.begin[d]),
        count(block.begin[d + 1] - begin),
        first_slot(block.slots[d]),
        slots(block.slots[d + 1] - first_slot),
        rows(reinterpret_cast<const T* const*>(block.rows) + begin),
        edges(block.edges == nullptr ? nullptr
                                     : reinterpret_cast<const Wide<T>* const*>(block.edges) + begin),
        place(block.place + begin) {}

  // Reads the entries of an array over slots for the edges that were not replaced.
  template <class Value>
  void read(const Value* all, int64_t heads, Value* to) const {
    const Value* from = all + first_slot * heads;
    if (count == slots) {  // no edge was replaced
      for (int64_t i = 0; i < count * heads; ++i) to[i] = from[i];
      return;
    }
    for (int64_t e = 0; e < count; ++e) {
      for (int64_t h = 0; h < heads; ++h) to[e * heads + h] = from[place[e] * heads + h];
    }
  }

  template <class Value>
  void write(const Value* from, int64_t heads, Value* all) const {
    Value* to = all + first_slot * heads;
    if (count == slots) {
      for (int64_t i = 0; i < count * heads; ++i) to[i] = from[i];
      return;
    }
    for (int64_t i = 0; i < slots * heads; ++i) to[i] = 0;
    for (int64_t e = 0; e < count; ++e) {
      for (int64_t h = 0; h < heads; ++h) to[place[e] * heads + h] = from[e * heads + h];
    }
  }
};

// out[e, h] = rows[e] . vectors[h] for a list of rows. Later rows are prefetched.
template <class T>
inline void list_dots(const T* const* rows, int64_t count, const Columns& of, const Wide<T>* vectors,
                      int64_t stride, Wide<T>* out, int64_t heads, int64_t ahead) {
  int64_t e = 0;
  // With few heads there are registers for more rows.
  for (; heads < 4 && e + 4 <= count; e += 4) {
    dots<4>(rows + e, of, vectors, stride, out + e * heads, heads, ahead);
  }
  for (; e + 2 <= count; e += 2) {
    dots<2>(rows + e, of, vectors, stride, out + e * heads, heads, ahead);
  }
  if (e < count) dots<1>(rows + e, of, vectors, stride, out + e * heads, heads, ahead);
}

// Additive scores have their leaky ReLU inside.
template <class Sum>
inline Sum slope_of_logits(const AttentionWeights& of) {
  return of.scores == Scores::kLinear ? static_cast<Sum>(of.slope) : Sum{1};
}

inline Columns keys_of(const AttentionWeights& of) { return {of.columns, 0, of.head_step}; }
inline Columns values_of(const AttentionWeights& of) { return {of.columns, of.first_value, of.head_step}; }

// out[e, h] = [row of the source, row of the edge] . vectors[h] for all edges of a destination.
// `more` has room for as many numbers as `out`.
template <class T>
inline void edge_dots(const Target<T>& target, const Columns& columns, const Wide<T>* vectors,
                      const AttentionWeights& of, int64_t ahead, Wide<T>* more, Wide<T>* out) {
  const int64_t H = of.heads, K = of.columns, L = of.edge_columns, W = of.width();
  list_dots(target.rows, target.count, columns, vectors, W, out, H, ahead);
  if (L == 0) return;
  list_dots(target.edges, target.count, {L}, vectors + K, W, more, H, 0);
  for (int64_t i = 0; i < target.count * H; ++i) out[i] += more[i];
}

// out[h] (+)= sum over a destination's edges of factors[e, h] * [row of the source, of the edge].
template <class T>
inline void edge_sums(const Target<T>& target, const Columns& columns, const Wide<T>* factors,
                      const AttentionWeights& of, int64_t ahead, Into into, Wide<T>* out) {
  const int64_t H = of.heads, K = of.columns, L = of.edge_columns, W = of.width();
  sums(target.rows, target.count, columns, factors, H, out, W, into, ahead);
  if (L > 0) sums(target.edges, target.count, {L}, factors, H, out + K, W, into, 0);
}

// Sums over an edge's ends and its row ############################################################

// Calls use(column, part, s, bits of its positive elements) for the columns of some heads of a sum.
template <class T, class Use>
[[gnu::always_inline]] inline void sum_ends(const T* x, const Wide<T>* y, const Wide<T>* edge,
                                            const AttentionWeights& of, int64_t first, int64_t count,
                                            const Use& use) {
  using L = Lanes<Wide<T>>;
  const auto* const weight = static_cast<const Wide<T>*>(of.edge_weight);
  vectors_of<Wide<T>>(count, [&](int64_t k, const auto& part) __attribute__((always_inline)) {
    const int64_t c = first + k;
    auto sum = part.load(x + c);
    if (y != nullptr) sum = L::add(sum, part.load(y + c));
    if (weight != nullptr) {
      for (int64_t l = 0; l < of.summed_edge_columns; ++l) {
        sum = L::fma(L::fill(edge[l]), part.load(weight + l * of.row_columns + c), sum);
      }
    } else if (edge != nullptr) {
      sum = L::add(sum, part.load(edge + c));
    }
    use(c, part, sum, L::passing(sum));
  });
}

// Multiplies the elements by the slope that the bits leave out.
template <class Sum>
[[gnu::always_inline]] inline Vector<Sum> leak(const Vector<Sum>& value, uint64_t bits, Sum slope) {
  using L = Lanes<Sum>;
  return L::fma(L::fill(slope), L::keep(value, ~bits), L::keep(value, bits));
}

template <class Sum>
inline const Sum* row_of_target(const AttentionWeights& of, int64_t id) {
  return of.target_rows == nullptr ? nullptr : static_cast<const Sum*>(of.target_rows) + id * of.target_step;
}

template <class T>
inline const Wide<T>* row_of_edge(const AttentionWeights& of, const Target<T>& target, int64_t e) {
  if (of.edge_rows == nullptr) return nullptr;
  return static_cast<const Wide<T>*>(of.edge_rows) +
         (target.first_slot + target.place[e]) * of.summed_edge_columns;
}

// out[e, h] = a[h] . leaky_relu(s[e, h]) for all edges of a destination.
template <class T>
inline void additive_scores(const Target<T>& target, const AttentionWeights& of, int64_t ahead,
                            Wide<T>* out) {
  using Sum = Wide<T>;
  using L = Lanes<Sum>;
  const auto* const by = static_cast<const Sum*>(of.source);
  const auto slope = static_cast<Sum>(of.slope);
  const Sum* const y = row_of_target<Sum>(of, target.id);
  for (int64_t e = 0; e < target.count; ++e) {
    prefetch_row(reinterpret_cast<const char*>(target.rows[e + ahead]), of.row_columns * sizeof(T));
    for (int64_t h = 0; h < of.heads; ++h) {
      auto score = L::zero();
      sum_ends<T>(target.rows[e], y, row_of_edge(of, target, e), of, h * of.columns, of.columns,
                  [&](int64_t c, const auto& part, const auto& sum, uint64_t bits)
                      __attribute__((always_inline)) {
                        score = L::fma(part.load(by + c), leak<Sum>(sum, bits, slope), score);
                      });
      out[e * of.heads + h] = L::sum(score);
    }
  }
}

// out = sum over a destination's edges of leaky_relu(s[e]).
template <class T>
inline void message_sums(const Target<T>& target, const AttentionWeights& of, int64_t ahead, Wide<T>* out) {
  using Sum = Wide<T>;
  const auto slope = static_cast<Sum>(of.slope);
  const Sum* const y = row_of_target<Sum>(of, target.id);
  for (int64_t c = 0; c < of.row_columns; ++c) out[c] = 0;
  for (int64_t e = 0; e < target.count; ++e) {
    prefetch_row(reinterpret_cast<const char*>(target.rows[e + ahead]), of.row_columns * sizeof(T));
    sum_ends<T>(target.rows[e], y, row_of_edge(of, target, e), of, 0, of.row_columns,
                [&](int64_t c, const auto& part, const auto& sum, uint64_t bits)
                    __attribute__((always_inline)) {
                      part.store(out + c, Lanes<Sum>::add(part.load(out + c), leak<Sum>(sum, bits, slope)));
                    });
  }
}

// Returns the gradient of columns of s: that of the message, or of a score times a; leaked.
template <class Sum, class Grad, class Part>
[[gnu::always_inline]] inline Vector<Sum> sum_grad(const Part& part, int64_t c, const Sum* by,
                                                   const Sum* score, const Grad* grad, uint64_t signs,
                                                   Sum slope) {
  using L = Lanes<Sum>;
  if (score == nullptr) return leak<Sum>(part.load(grad + c), signs, slope);
  return leak<Sum>(L::multiply(L::fill(*score), part.load(by + c)), signs, slope);
}

// Returns how many numbers an edge has in `pairs` before the signs of its sum, one for each vector.
inline int64_t before_signs(const AttentionWeights& of) {
  return of.scores == Scores::kMessages ? 0 : 2 * of.heads;
}

// Adds the gradients of a destination's sums to those of a, y, W and the rows of its edges.
template <class T>
inline void add_sum_grads(const AttentionBackward& task, const Target<T>& target, const Place<Wide<T>>& at,
                          int64_t ahead, const Wide<T>* scores, const Wide<T>* grad) {
  using Sum = Wide<T>;
  using L = Lanes<Sum>;
  const AttentionWeights& of = task.weights;
  const int64_t F = of.row_columns, K = of.summed_edge_columns;
  const auto* const by = static_cast<const Sum*>(of.source);
  const auto slope = static_cast<Sum>(of.slope);
  auto* const pairs = static_cast<Sum*>(task.pairs);
  auto* const of_scores = static_cast<Sum*>(task.source_weight);
  auto* const of_weight = static_cast<Sum*>(task.edge_weight);
  auto* const of_edges = static_cast<Sum*>(task.edge);
  Sum* const of_y =
      task.target_rows == nullptr ? at.target_row : static_cast<Sum*>(task.target_rows) + target.id * F;
  for (int64_t c = 0; c < F; ++c) of_y[c] = 0;
  if (of_edges != nullptr) {
    for (int64_t i = 0; i < target.slots * K; ++i) of_edges[target.first_slot * K + i] = 0;
  }
  for (int64_t e = 0; e < target.count; ++e) {
    prefetch_row(reinterpret_cast<const char*>(target.rows[e + ahead]), F * sizeof(T));
    const Sum* const edge = row_of_edge(of, target, e);
    const int64_t slot = target.first_slot + target.place[e];
    Sum* const of_edge = of_edges == nullptr ? nullptr : of_edges + slot * K;
    Sum* const kept = of_weight == nullptr && of_edge != nullptr ? of_edge : at.narrow;
    Sum* const pair = pairs == nullptr ? nullptr : pairs + slot * task.pair_step + before_signs(of);
    auto* signs = reinterpret_cast<uint16_t*>(pair);
    for (int64_t h = 0; h < of.heads; ++h) {
      const Sum* const score = scores == nullptr ? nullptr : scores + e * of.heads + h;
      sum_ends<T>(target.rows[e], row_of_target<Sum>(of, target.id), edge, of, h * of.columns, of.columns,
                  [&](int64_t c, const auto& part, const auto& sum, uint64_t bits)
                      __attribute__((always_inline)) {
                        const auto of_sum = sum_grad<Sum>(part, c, by, score, grad, bits, slope);
                        if (signs != nullptr) *signs++ = static_cast<uint16_t>(bits);
                        part.store(of_y + c, L::add(of_sum, part.load(of_y + c)));
                        if (score != nullptr) {
                          const auto value = leak<Sum>(sum, bits, slope);
                          part.store(of_scores + c, L::fma(L::fill(*score), value, part.load(of_scores + c)));
                        }
                        for (int64_t l = 0; of_weight != nullptr && l < K; ++l) {
                          Sum* const to = of_weight + l * F + c;
                          part.store(to, L::fma(L::fill(edge[l]), of_sum, part.load(to)));
                        }
                        if (of_edge != nullptr) part.store(kept + c, of_sum);
                      });
    }
    if (of_edge == nullptr || of_weight == nullptr) continue;
    const Sum* const rows[1] = {kept};
    dots<1>(rows, {F}, static_cast<const Sum*>(of.edge_weight), F, of_edge, K, 0);
  }
}

// Forward #########################################################################################

// Computes the terms that all logits of a destination share.
template <class T>
inline void target_logits(const AttentionForward& task, const AttentionBlock& block, int64_t d,
                          Wide<T>* out) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  if (of.target != nullptr) {
    const auto* const* self = reinterpret_cast<const T* const*>(block.self) + d;
    dots<1>(self, {of.columns}, static_cast<const Sum*>(of.target), of.columns, out, of.heads, 0);
  } else {
    for (int64_t h = 0; h < of.heads; ++h) out[h] = 0;
  }
  if (task.target_logits == nullptr) return;
  const Sum* more = static_cast<const Sum*>(task.target_logits) + (block.first + d) * of.heads;
  for (int64_t h = 0; h < of.heads; ++h) out[h] += more[h];
}

template <class T>
inline void edge_logits(const AttentionForward& task, const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads;
  for (int64_t e = 0; e < target.count; ++e) {
    for (int64_t h = 0; h < H; ++h) at.logits[e * H + h] += at.target[h];
  }
  if (task.edge_logits == nullptr) return;
  target.read(static_cast<const Sum*>(task.edge_logits), H, at.weights);
  for (int64_t i = 0; i < target.count * H; ++i) at.logits[i] += at.weights[i];
}

// Stores the softmax, its sign the side of the leaky ReLU, drops, and stores the sums of the rest.
template <class T>
inline void keep_coefficients(const AttentionForward& task, const AttentionBlock& block,
                              const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads, count = target.count * H;
  for (int64_t i = 0; i < count; ++i) at.logits[i] = at.logits[i] > 0 ? at.weights[i] : -at.weights[i];
  target.write(at.logits, H, static_cast<Sum*>(task.coefficient));
  Sum* const total = static_cast<Sum*>(task.total) + target.id * H;
  for (int64_t h = 0; h < H; ++h) total[h] = count > 0 ? 1 : 0;
  if (block.keep == nullptr) return;
  const uint8_t* keep = block.keep + target.begin * H;
  const auto scale = static_cast<Sum>(task.weights.scale);
  for (int64_t i = 0; i < count; ++i) at.weights[i] *= keep[i] != 0 ? scale : Sum{0};
  for (int64_t h = 0; h < H; ++h) {
    Sum sum = 0;
    for (int64_t i = h; i < count; i += H) sum += at.weights[i];
    total[h] = sum;
  }
}

// Decodes the sums of codes of all heads of a destination.
template <class Sum>
inline void decode_sums(const AttentionWeights& of, const Sum* total, Sum* row) {
  for (int64_t h = 0; h < of.heads; ++h, row += of.width()) {
    for (int64_t k = 0; k < of.columns; ++k) {
      row[k] = row[k] * static_cast<Sum>(of.decoding.scale[k]) +
               total[h] * static_cast<Sum>(of.decoding.offset[k]);
    }
  }
}

// Computes the coefficients of a destination after dropout.
template <class T>
inline void soften(const AttentionForward& task, const AttentionBlock& block, int64_t d,
                   const Target<T>& target, int64_t ahead, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  if (of.scores == Scores::kAdditive) {
    additive_scores(target, of, ahead, at.logits);
  } else {
    const Sum* const weights = static_cast<const Sum*>(of.source) + target.id * of.source_step;
    edge_dots(target, keys_of(of), weights, of, ahead, at.weights, at.logits);
  }
  target_logits<T>(task, block, d, at.target);
  edge_logits(task, target, at);
  softmax(at.logits, target.count, of.heads, slope_of_logits<Sum>(of), at.weights);
  keep_coefficients(task, block, target, at);
}

template <class T>
void forward_targets(const AttentionForward& task, const AttentionBlock& block) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  const int64_t H = of.heads, W = of.width();
  const Place<Sum> at(block.scratch, longest_list(block), of);
  const int64_t ahead = rows_ahead(of.row_columns * static_cast<int64_t>(sizeof(T)));
  const bool direct = task.out_type == Element::kFloat32 || task.out_type == Element::kFloat64;
  const int64_t out_size = direct ? sizeof(Sum) : 2;
  for (int64_t d = 0; d < block.targets; ++d) {
    const Target<T> target(block, d);
    if (of.scores == Scores::kGiven) {
      target.read(static_cast<const Sum*>(task.edge_logits), H, at.weights);
    } else if (of.scores != Scores::kMessages) {
      soften<T>(task, block, d, target, ahead, at);
    }
    char* const out = static_cast<char*>(task.out) + target.id * H * W * out_size;
    Sum* const row = direct && !task.stream ? reinterpret_cast<Sum*>(out) : at.row;
    if (of.scores == Scores::kMessages) {
      message_sums(target, of, ahead, row);
    } else {
      edge_sums(target, values_of(of), at.weights, of, ahead, Into::kFresh, row);
    }
    if (of.decoding) decode_sums(of, static_cast<const Sum*>(task.total) + target.id * H, row);
    if (!direct) narrow_row(row, H * W, task.out_type, out);
    if (task.stream) stream_row(row, H * W, reinterpret_cast<Sum*>(out));
  }
  if (task.stream) fence();
}

// Backward ########################################################################################

// Converts gradients of alpha, and of its sums, to those of the softmax, and adds those of the
// returned coefficients. The sums have no gradient without dropout: they are one.
template <class T>
inline void softmax_upstream(const AttentionBackward& task, const AttentionBlock& block,
                             const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads, count = target.count * H;
  if (block.keep != nullptr) {
    if (task.grad_total != nullptr) {
      const Sum* const total = static_cast<const Sum*>(task.grad_total) + target.id * H;
      for (int64_t e = 0; e < target.count; ++e) {
        for (int64_t h = 0; h < H; ++h) at.grads[e * H + h] += total[h];
      }
    }
    const uint8_t* keep = block.keep + target.begin * H;
    const auto scale = static_cast<Sum>(task.weights.scale);
    for (int64_t i = 0; i < count; ++i) at.grads[i] *= keep[i] != 0 ? scale : Sum{0};
  }
  if (task.grad_coefficient == nullptr) return;
  target.read(static_cast<const Sum*>(task.grad_coefficient), H, at.logits);
  for (int64_t i = 0; i < count; ++i) at.grads[i] += at.weights[i] < 0 ? -at.logits[i] : at.logits[i];
}

// Makes alpha after dropout of the stored coefficients.
template <class T>
inline void drop_weights(const AttentionBackward& task, const AttentionBlock& block, const Target<T>& target,
                         const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads, count = target.count * H;
  if (task.weights.scores == Scores::kGiven) return;
  for (int64_t i = 0; i < count; ++i) at.weights[i] = at.weights[i] < 0 ? -at.weights[i] : at.weights[i];
  if (block.keep == nullptr) return;
  const uint8_t* keep = block.keep + target.begin * H;
  const auto scale = static_cast<Sum>(task.weights.scale);
  for (int64_t i = 0; i < count; ++i) at.weights[i] *= keep[i] != 0 ? scale : Sum{0};
}

// Stores alpha and the gradient of its logit side by side, for the pass over sources.
template <class T>
inline void keep_pairs(const AttentionBackward& task, const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads;
  Sum* const pairs = static_cast<Sum*>(task.pairs) + target.first_slot * task.pair_step;
  for (int64_t e = 0; e < target.count; ++e) {
    Sum* const pair = pairs + target.place[e] * task.pair_step;
    for (int64_t h = 0; h < H; ++h) {
      pair[h] = at.weights[e * H + h];
      pair[H + h] = at.grads[e * H + h];
    }
  }
}

// Writes the gradients of edges' rows: alpha times that of z, plus logits' gradients times weights.
template <class T>
inline void edge_row_grads(const AttentionBackward& task, const Target<T>& target, const Place<Wide<T>>& at,
                           const Wide<T>* grad, const Wide<T>* weights) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads, K = task.weights.columns, L = task.weights.edge_columns;
  const int64_t W = task.weights.width();
  Sum* const rows = static_cast<Sum*>(task.edge) + target.first_slot * L;
  for (int64_t i = 0; i < target.slots * L; ++i) rows[i] = 0;
  for (int64_t e = 0; e < target.count; ++e) {
    Sum* const row = rows + target.place[e] * L;
    add_heads(grad + K, W, at.weights + e * H, H, L, row);
    add_heads(weights + K, W, at.grads + e * H, H, L, row);
  }
}

// Sets `row` to the gradient of the sums of codes of a destination, given that of the decoded sums,
// and totals [heads] to the gradients that the weights have by their sums, which offsets multiply.
inline void code_grads(const AttentionWeights& of, const float* grad, float* row, float* totals) {
  using L = Lanes<float>;
  const int64_t K = of.columns, W = of.width();
  for (int64_t h = 0; h < of.heads; ++h, grad += W, row += W) {
    typename L::Vector total = L::zero();
    vectors_of<float>(K, [&](int64_t k, const auto& part) __attribute__((always_inline)) {
      const auto value = part.load(grad + k);
      total = L::fma(value, part.load(of.decoding.offset + k), total);
      part.store(row + k, L::multiply(value, part.load(of.decoding.scale + k)));
    });
    for (int64_t k = K; k < W; ++k) row[k] = grad[k];
    totals[h] = L::sum(total);
  }
}

template <class T>
void backward_targets(const AttentionBackward& task, const AttentionBlock& block) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  const int64_t H = of.heads, K = of.columns, W = of.width();
  const Place<Sum> at(block.scratch, longest_list(block), of);
  const int64_t ahead = rows_ahead(of.row_columns * static_cast<int64_t>(sizeof(T)));
  const bool narrow = task.grad_type == Element::kBFloat16;
  const int64_t grad_size = narrow ? 2 : sizeof(Sum);
  const Into into = of.source_step == 0 ? Into::kAdd : Into::kFresh;
  for (int64_t d = 0; d < block.targets; ++d) {
    const Target<T> target(block, d);
    const char* const from = static_cast<const char*>(task.grad) + target.id * H * W * grad_size;
    const Sum* grad = widen_row(from, task.grad_type, H * W, at.row);
    if constexpr (std::is_same_v<T, Code>) {
      code_grads(of, grad, at.row, at.target);
      grad = at.row;
    }
    if (of.scores == Scores::kMessages) {
      add_sum_grads<T>(task, target, at, ahead, nullptr, grad);
      continue;
    }
    edge_dots(target, values_of(of), grad, of, ahead, at.weights, at.grads);
    if constexpr (std::is_same_v<T, Code>) {
      for (int64_t e = 0; e < target.count; ++e) {
        for (int64_t h = 0; h < H; ++h) at.grads[e * H + h] += at.target[h];
      }
    }
    target.read(static_cast<const Sum*>(task.coefficient), H, at.weights);
    const int64_t of_target = target.id * of.source_step;
    if (of.scores != Scores::kGiven) {
      softmax_upstream(task, block, target, at);
      softmax_grad(at.weights, target.count, H, slope_of_logits<Sum>(of), at.grads, at.total);
      Sum* const target_grad = static_cast<Sum*>(task.target_logits) + target.id * H;
      for (int64_t h = 0; h < H; ++h) target_grad[h] = at.total[h];
    }
    if (of.scores == Scores::kLinear) {
      edge_sums(target, keys_of(of), at.grads, of, ahead, into,
                static_cast<Sum*>(task.source_weight) + of_target);
    } else if (of.scores == Scores::kAdditive) {
      add_sum_grads<T>(task, target, at, 0, at.grads, nullptr);
    }
    if (of.target != nullptr) {
      const auto* const* self = reinterpret_cast<const T* const*>(block.self) + d;
      sums(self, 1, {K}, at.total, H, static_cast<Sum*>(task.target_weight), K, Into::kAdd, 0);
    }
    if (task.edge_logits != nullptr) target.write(at.grads, H, static_cast<Sum*>(task.edge_logits));
    if (task.pairs == nullptr && task.edge == nullptr) continue;
    drop_weights(task, block, target, at);
    if (task.pairs != nullptr) keep_pairs(task, target, at);
    if (task.edge == nullptr || of.scores != Scores::kLinear) continue;
    edge_row_grads(task, target, at, grad, static_cast<const Sum*>(of.source) + of_target);
  }
}

// Gradient of the inputs ##########################################################################

// out += sum over h of factors[h] * vectors[h], in the columns that are read of a row.
template <class T>
inline void add_to_row(const T* vectors, int64_t stride, const Wide<T>* factors, int64_t heads,
                       const Columns& of, Wide<T>* out) {
  if (of.step == 0) return add_heads(vectors, stride, factors, heads, of.count, out);
  for (int64_t h = 0; h < heads; ++h) {
    add_heads(vectors + h * stride, stride, factors + h, 1, of.count, out + of.from + h * of.step);
  }
}

// dx_j = sum over (i, h) of alpha_ijh G_ih, plus logits' gradients times weights.
template <class Grad>
void input_grads(const AttentionInputGrad& task, const AttentionSources& block) {
  using Sum = Wide<Grad>;
  const AttentionWeights& of = task.weights;
  const int64_t H = of.heads, K = of.columns, W = of.width();
  const Place<Sum> at(block.scratch, 0, of);
  const bool narrow = task.out_type == Element::kBFloat16;
  const int64_t out_size = narrow ? 2 : sizeof(Sum);
  const int64_t ahead = rows_ahead(H * W * static_cast<int64_t>(sizeof(Sum)));
  const auto* const source_weight = static_cast<const Sum*>(of.source);
  const auto slope = static_cast<Sum>(of.slope);
  const auto* const target_weight = static_cast<const Sum*>(of.target);
  const Columns keys = keys_of(of), values = values_of(of);
  const bool is_summed = of.scores == Scores::kAdditive || of.scores == Scores::kMessages;
  for (int64_t s = 0; s < block.sources; ++s) {
    const int64_t id = block.first + s;
    char* const to = static_cast<char*>(task.out) + id * of.row_columns * out_size;
    Sum* const row = narrow ? at.narrow : reinterpret_cast<Sum*>(to);
    for (int64_t h = 0; h < H; ++h) at.total[h] = 0;
    for (int64_t k = 0; k < of.row_columns; ++k) row[k] = 0;
    for (int64_t e = block.begin[s]; e < block.begin[s + 1]; ++e) {
      prefetch_row(block.pairs[e + ahead], 2 * H * static_cast<int64_t>(sizeof(Sum)));
      prefetch_row(block.grads[e + ahead], H * W * static_cast<int64_t>(sizeof(Grad)));
      const auto* const pair = reinterpret_cast<const Sum*>(block.pairs[e]);
      const auto* const grad = reinterpret_cast<const Grad*>(block.grads[e]);
      if (of.scores != Scores::kMessages) add_to_row(grad, W, pair, H, values, row);
      if (is_summed) {
        const auto* signs = reinterpret_cast<const uint16_t*>(pair + before_signs(of));
        for (int64_t h = 0; h < H; ++h) {
          const Sum* const score = of.scores == Scores::kMessages ? nullptr : pair + H + h;
          vectors_of<Sum>(K, [&](int64_t k, const auto& part) __attribute__((always_inline)) {
            Sum* const sums = row + h * K + k;
            const auto of_sum = sum_grad<Sum>(part, h * K + k, source_weight, score, grad, *signs++, slope);
            part.store(sums, Lanes<Sum>::add(of_sum, part.load(sums)));
          });
        }
      } else if (block.weights != nullptr) {
        prefetch_row(block.weights[e + ahead], H * W * static_cast<int64_t>(sizeof(Sum)));
        add_to_row(reinterpret_cast<const Sum*>(block.weights[e]), W, pair + H, H, keys, row);
      } else {
        for (int64_t h = 0; h < H; ++h) at.total[h] += pair[H + h];
      }
    }
    if (block.weights == nullptr && of.scores == Scores::kLinear)
      add_to_row(source_weight, W, at.total, H, keys, row);
    if (target_weight != nullptr && id < task.targets) {
      add_heads(target_weight, K, static_cast<const Sum*>(task.target_logits) + id * H, H, K, row);
    }
    if (narrow) narrow_row(row, of.row_columns, task.out_type, to);
  }
}

// By type #########################################################################################

void forward_block(Element type, const AttentionForward& task, const AttentionBlock& block) {
  with_element(type, [&](auto row) { forward_targets<decltype(row)>(task, block); });
}

void backward_block(Element type, const AttentionBackward& task, const AttentionBlock& block) {
  with_element(type, [&](auto row) { backward_targets<decltype(row)>(task, block); });
}

void input_grad_block(const AttentionInputGrad& task, const AttentionSources& block) {
  with_element(task.grad_type, [&](auto grad) {
    // Gradients of float16 and of codes are never written.
    if constexpr (std::is_same_v<Wide<decltype(grad)>, decltype(grad)> ||
                  std::is_same_v<decltype(grad), Bfloat16>) {
      input_grads<decltype(grad)>(task, block);
    }
  });
}

constexpr AttentionKernels kAttentionKernels{&forward_block, &backward_block, &input_grad_block,
                                             Lanes<float>::kWidth};
