// Products that skip zeros. Included by products_body.h.

// One row after the other, with C vectors of it in registers.
template <class T, int C>
void sparse_columns(const SparseProduct<T>& p, int64_t first) {
  using L = Lanes<T>;
  for (int64_t r = 0; r < p.rows; ++r) {
    uint64_t word = p.words[r * p.word_step];
    p.prefetch->fetch(kLinesPerRow);
    if (word == 0) continue;
    const T* const values = p.values + r * p.row_step;
    T* const out = p.out + r * p.out_stride + first;
    typename L::Vector sum[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum[c] = L::load(out + c * L::kWidth);
    // The sums of the next row come from the second cache.
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) __builtin_prefetch(out + p.out_stride + c * L::kWidth);
    for (; word != 0; word &= word - 1) {
      const int64_t s = std::countr_zero(word);
      const typename L::Vector factor = L::fill(values[s * p.value_step]);
      const T* const x = p.x + s * p.x_stride + first;
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) sum[c] = L::fma(factor, L::load(x + c * L::kWidth), sum[c]);
    }
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) L::store(out + c * L::kWidth, sum[c]);
  }
}

// C vectors of a row of sums, in registers.
template <class T, int C>
struct RowSums {
  using L = Lanes<T>;
  typename L::Vector sum[C];

  __attribute__((always_inline)) void load(const T* out) {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum[c] = L::load(out + c * L::kWidth);
  }

  __attribute__((always_inline)) void store(T* out) const {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) L::store(out + c * L::kWidth, sum[c]);
  }

  // Adds the terms of `word` in order.
  __attribute__((always_inline)) void add(uint64_t word, const T* values, const T* x, int64_t x_stride) {
    for (; word != 0; word &= word - 1) {
      const int64_t s = std::countr_zero(word);
      const typename L::Vector factor = L::fill(values[s]);
      const T* const term = x + s * x_stride;
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) sum[c] = L::fma(factor, L::load(term + c * L::kWidth), sum[c]);
    }
  }
};

// Terms that both rows have are loaded once; then the other terms follow.
template <class T, int C>
PYG_BATCHGNN_INLINE void sparse_two_rows(const SparseProduct<T>& p, int64_t r, const T* x, int64_t x_stride,
                                         T* out) {
  using L = Lanes<T>;
  uint64_t word = p.words[r * p.word_step], next = p.words[(r + 1) * p.word_step];
  p.prefetch->fetch(2 * kLinesPerRow);
  if ((word | next) == 0) return;
  const T* const values = p.values + r * p.row_step;
  const T* const next_values = values + p.row_step;
  T* const next_out = out + p.out_stride;
  RowSums<T, C> sums, next_sums;
  sums.load(out);
  next_sums.load(next_out);
  // The sums of the next two rows come from the second cache.
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) {
    __builtin_prefetch(next_out + p.out_stride + c * L::kWidth);
    __builtin_prefetch(next_out + 2 * p.out_stride + c * L::kWidth);
  }
  uint64_t both = word & next;
  word ^= both;
  next ^= both;
  for (; both != 0; both &= both - 1) {
    const int64_t s = std::countr_zero(both);
    const typename L::Vector factor = L::fill(values[s]), next_factor = L::fill(next_values[s]);
    const T* const term = x + s * x_stride;
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) {
      const typename L::Vector loaded = in_register(L::load(term + c * L::kWidth));
      sums.sum[c] = L::fma(factor, loaded, sums.sum[c]);
      next_sums.sum[c] = L::fma(next_factor, loaded, next_sums.sum[c]);
    }
  }
  sums.add(word, values, x, x_stride);
  next_sums.add(next, next_values, x, x_stride);
  sums.store(out);
  next_sums.store(next_out);
}

template <class T, int C>
void sparse_columns_by_two(const SparseProduct<T>& p, int64_t first) {
  const T* const x = p.x + first;
  const int64_t x_stride = p.x_stride;
  int64_t r = 0;
  for (; r + 2 <= p.rows; r += 2) {
    sparse_two_rows<T, C>(p, r, x, x_stride, p.out + r * p.out_stride + first);
  }
  if (r == p.rows) return;
  SparseProduct<T> last = p;
  last.words += r * p.word_step;
  last.values += r * p.row_step;
  last.out += r * p.out_stride;
  last.rows = 1;
  sparse_columns<T, C>(last, first);
}

template <class T>
using SparseColumns = void (*)(const SparseProduct<T>&, int64_t);

template <class T, size_t N>
PYG_BATCHGNN_INLINE void sparse_pieces(const SparseProduct<T>& p,
                                       const std::array<SparseColumns<T>, N>& table) {
  constexpr auto kMost = static_cast<int64_t>(N);
  const int64_t pieces = (p.vectors + kMost - 1) / kMost;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = p.vectors * piece / pieces, end = p.vectors * (piece + 1) / pieces;
    table[static_cast<size_t>(end - begin - 1)](p, begin * Lanes<T>::kWidth);
  }
}

template <class T, int... C>
constexpr auto sparse_table(std::integer_sequence<int, C...>) {
  return std::array<SparseColumns<T>, sizeof...(C)>{&sparse_columns<T, C + 1>...};
}

template <class T, int... C>
constexpr auto sparse_table_by_two(std::integer_sequence<int, C...>) {
  return std::array<SparseColumns<T>, sizeof...(C)>{&sparse_columns_by_two<T, C + 1>...};
}

template <class T>
void sparse(const SparseProduct<T>& p) {
  using L = Lanes<T>;
  static constexpr auto kTable = sparse_table<T>(std::make_integer_sequence<int, L::kSparseVectors>{});
  static constexpr auto kByTwo = sparse_table_by_two<T>(std::make_integer_sequence<int, L::kTwoRowVectors>{});
  if (p.rows_at_once == SparseRows::kTwo) {
    sparse_pieces(p, kByTwo);
  } else {
    sparse_pieces(p, kTable);
  }
}
