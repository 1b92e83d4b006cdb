// The loops of layer_norm.h.

#include "kernels/simd/row_parts_body.h"

// Rows whose sums are taken at once: one sum alone would wait for each of its additions. The next
// rows are prefetched meanwhile, because the processor does not recognise the order of several.
constexpr int kGroup = 4;
constexpr int64_t kWord = 64;  // the columns whose bits are handled together

// Calls word(at, count) for the words of a row. The count is constant but in the last word.
template <class Loop>
PYG_BATCHGNN_INLINE void words_of(int64_t columns, const Loop& word) {
  int64_t at = 0;
  for (; at + kWord <= columns; at += kWord) word(at, kWord);
  if (at < columns) word(at, columns - at);
}

PYG_BATCHGNN_INLINE uint64_t read_bits(const uint8_t* from, int64_t count) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, static_cast<size_t>((count + 7) / 8));
  return bits;
}

PYG_BATCHGNN_INLINE void write_bits(uint64_t bits, int64_t count, uint8_t* to) {
  if (count < kWord) bits &= (1ull << count) - 1;
  std::memcpy(to, &bits, static_cast<size_t>((count + 7) / 8));
}

// Takes the numbers of kRows rows. The sums are taken about the first element and then about the
// mean: equal numbers have a deviation of zero, and a mean far above the deviation costs no digits.
template <int kRows, class T>
PYG_BATCHGNN_INLINE void row_norms(const T* x, int64_t columns, double eps, RowNorm<Wide<T>>* out) {
  using A = Wide<T>;
  using L = Lanes<A>;
  Vector<A> base[kRows], sum[kRows], square[kRows];
  const A inverse = A(1) / static_cast<A>(columns);
  for (int r = 0; r < kRows; ++r) {
    base[r] = L::fill(-widen(x[r * columns]));
    sum[r] = L::zero();
  }
  vectors_of<A>(columns, [&](int64_t c, const auto& part) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(x + (r + kRows) * columns + c);
      sum[r] = L::add(sum[r], part.keep(L::add(part.load(x + r * columns + c), base[r])));
    }
  });
  for (int r = 0; r < kRows; ++r) {
    out[r].center = widen(x[r * columns]) + L::sum(sum[r]) * inverse;
    base[r] = L::fill(-out[r].center);
    sum[r] = square[r] = L::zero();
  }
  vectors_of<A>(columns, [&](int64_t c, const auto& part) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto d = part.keep(L::add(part.load(x + r * columns + c), base[r]));
      sum[r] = L::add(sum[r], d);
      square[r] = L::fma(d, d, square[r]);
    }
  });
  for (int r = 0; r < kRows; ++r) {
    const A offset = L::sum(sum[r]) * inverse, variance = L::sum(square[r]) * inverse - offset * offset;
    const double from = variance < 0 ? 0.0 : static_cast<double>(variance);  // a NaN stays one
    out[r].scale = static_cast<A>(1.0 / __builtin_sqrt(from + eps));
    out[r].shift = -offset * out[r].scale;
  }
}

// Writes a row and its mask. value(c, part) returns its elements from column c on, which change.
template <class T, class Value>
PYG_BATCHGNN_INLINE void activate_row(const Activation& job, int64_t columns, int64_t row, const Value& value,
                                      T* y) {
  using A = Wide<T>;
  using L = Lanes<A>;
  const Dropout* const dropout = job.dropout;
  const uint64_t always = job.relu ? 0 : ~0ull;
  const auto factor = L::fill(static_cast<A>(dropout == nullptr ? 1.0 : dropout->scale()));
  const int64_t node = job.node == nullptr ? row : job.node[row];
  const uint64_t key = dropout == nullptr ? 0 : dropout_row_key(dropout->key, node);
  uint8_t* const mask = job.mask + row * ((columns + 7) / 8);
  words_of(columns, [&](int64_t at, int64_t count) __attribute__((always_inline)) {
    uint64_t bits = dropout == nullptr ? ~0ull : kept_columns(*dropout, key, at / kDropoutColumnsPerWord);
    uint64_t passing = always;
    vectors_of<A>(count, [&](int64_t i, const auto& part) __attribute__((always_inline)) {
      const auto z = value(at + i, part);
      const uint64_t passes = L::passing(z);
      passing |= passes << i;
      part.store(y + at + i, L::keep(L::multiply(z, factor), (bits >> i) & (passes | always)));
    });
    write_bits(bits & passing, count, mask + at / 8);
  });
}

template <class T>
PYG_BATCHGNN_INLINE void normalise_row(const LayerNorm<T>& job, int64_t row) {
  using A = Wide<T>;
  using L = Lanes<A>;
  const T* const x = job.x + row * job.columns;
  T* const y = job.y + row * job.columns;
  const RowNorm<A>& norm = job.norms[row];
  const auto center = L::fill(-norm.center), scale = L::fill(norm.scale), shift = L::fill(norm.shift);
  const auto value = [&](int64_t c, const auto& part) __attribute__((always_inline)) {
    const auto normed = L::fma(L::add(part.load(x + c), center), scale, shift);
    return L::fma(normed, part.load(job.weight + c), part.load(job.bias + c));
  };
  if (job.activation.mask != nullptr) return activate_row(job.activation, job.columns, row, value, y);
  vectors_of<A>(job.columns, [&](int64_t c, const auto& part)
                                 __attribute__((always_inline)) { part.store(y + c, value(c, part)); });
}

template <class T>
void activate_rows(T* x, int64_t columns, const Activation& activation, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    T* const own = x + row * columns;
    activate_row(
        activation, columns, row,
        [&](int64_t c, const auto& part) __attribute__((always_inline)) { return part.load(own + c); }, own);
  }
}

template <class T>
void mask_rows(const T* grad, const uint8_t* mask, int64_t columns, double scale, int64_t begin, int64_t end,
               T* out) {
  using A = Wide<T>;
  using L = Lanes<A>;
  const auto factor = L::fill(static_cast<A>(scale));
  for (int64_t row = begin; row < end; ++row) {
    words_of(columns, [&](int64_t at, int64_t count) __attribute__((always_inline)) {
      const uint64_t bits = read_bits(mask + row * ((columns + 7) / 8) + at / 8, count);
      vectors_of<A>(count, [&](int64_t i, const auto& part) __attribute__((always_inline)) {
        const int64_t c = row * columns + at + i;
        part.store(out + c, L::keep(L::multiply(part.load(grad + c), factor), bits >> i));
      });
    });
  }
}

template <class T>
void layer_norm_rows(const LayerNorm<T>& job, int64_t begin, int64_t end) {
  int64_t row = begin;
  for (; row + kGroup <= end; row += kGroup) {
    row_norms<kGroup>(job.x + row * job.columns, job.columns, job.eps, job.norms + row);
    for (int64_t r = row; r < row + kGroup; ++r) normalise_row(job, r);
  }
  for (; row < end; ++row) {
    row_norms<1>(job.x + row * job.columns, job.columns, job.eps, job.norms + row);
    normalise_row(job, row);
  }
}

// Gradients

// With n the normalised row and g the gradient behind ReLU and dropout, times the weight:
// d_x = scale * (g - mean(g) - n * mean(g * n)).
template <int kRows, class T>
PYG_BATCHGNN_INLINE void grad_rows(const LayerNormGrads<T>& job, int64_t row, Wide<T>* total,
                                   Wide<T>* product) {
  using A = Wide<T>;
  using L = Lanes<A>;
  const int64_t columns = job.columns, mask_bytes = (columns + 7) / 8;
  const T* const x = job.x + row * columns;
  const T* const grad = job.grad + row * columns;
  const uint8_t* const mask = job.mask == nullptr ? nullptr : job.mask + row * mask_bytes;
  Vector<A> center[kRows], scale[kRows], shift[kRows], sum[kRows], along[kRows];
  for (int r = 0; r < kRows; ++r) {
    const RowNorm<A>& norm = job.norms[row + r];
    center[r] = L::fill(-norm.center), scale[r] = L::fill(norm.scale), shift[r] = L::fill(norm.shift);
    sum[r] = along[r] = L::zero();
  }
  // Calls body(c, part, bits of each row from column c on).
  const auto columns_of = [&](const auto& body) __attribute__((always_inline)) {
    words_of(columns, [&](int64_t at, int64_t count) __attribute__((always_inline)) {
      uint64_t bits[kRows];
      for (int r = 0; r < kRows; ++r) {
        bits[r] = mask == nullptr ? ~0ull : read_bits(mask + r * mask_bytes + at / 8, count);
      }
      vectors_of<A>(count, [&](int64_t i, const auto& part) __attribute__((always_inline)) {
        uint64_t here[kRows];
        for (int r = 0; r < kRows; ++r) here[r] = bits[r] >> i;
        body(at + i, part, here);
      });
    });
  };
  columns_of([&](int64_t c, const auto& part, const uint64_t* bits) __attribute__((always_inline)) {
    const auto weight = part.load(job.weight + c);
    auto of_bias = part.load(total + c), of_weight = part.load(product + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(x + (r + kRows) * columns + c);
      __builtin_prefetch(grad + (r + kRows) * columns + c);
      const auto normed = L::fma(L::add(part.load(x + r * columns + c), center[r]), scale[r], shift[r]);
      const auto g = L::keep(part.load(grad + r * columns + c), bits[r]);
      of_bias = L::add(of_bias, g);
      of_weight = L::fma(g, normed, of_weight);
      const auto weighed = L::multiply(g, weight);
      sum[r] = L::add(sum[r], weighed);
      along[r] = L::fma(weighed, normed, along[r]);
    }
    part.store(total + c, of_bias);
    part.store(product + c, of_weight);
  });
  Vector<A> constant[kRows], slope[kRows];
  for (int r = 0; r < kRows; ++r) {
    const RowNorm<A>& norm = job.norms[row + r];
    const A factor = norm.scale * job.scale, share = -factor / static_cast<A>(columns);
    const A by_normed = share * L::sum(along[r]);
    scale[r] = L::fill(factor);
    slope[r] = L::fill(by_normed * norm.scale);
    constant[r] = L::fill(share * L::sum(sum[r]) + by_normed * norm.shift);
  }
  T* const out = job.d_x + row * columns;
  columns_of([&](int64_t c, const auto& part, const uint64_t* bits) __attribute__((always_inline)) {
    const auto weight = part.load(job.weight + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto d = L::add(part.load(x + r * columns + c), center[r]);
      const auto g = L::multiply(L::keep(part.load(grad + r * columns + c), bits[r]), weight);
      part.store(out + r * columns + c, L::fma(g, scale[r], L::fma(d, slope[r], constant[r])));
    }
  });
}

template <class T>
void layer_norm_grad_rows(const LayerNormGrads<T>& job, int64_t begin, int64_t end, Wide<T>* sum,
                          Wide<T>* product) {
  std::fill_n(sum, job.columns, Wide<T>(0));
  std::fill_n(product, job.columns, Wide<T>(0));
  int64_t row = begin;
  for (; row + kGroup <= end; row += kGroup) grad_rows<kGroup>(job, row, sum, product);
  for (; row < end; ++row) grad_rows<1>(job, row, sum, product);
}
