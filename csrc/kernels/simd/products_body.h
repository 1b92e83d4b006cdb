// The loops of products.h.

#include "kernels/simd/row_parts_body.h"

constexpr int64_t kLinesPerTile = 24, kLinesPerRow = 4;  // memory keeps up with that

// A tile of kTileRows x C vectors, in registers from the first term to the last.
template <class T, int C>
PYG_BATCHGNN_INLINE void dense_tile(const DenseProduct<T>& p, const T* const* values, const T* x, T* out) {
  using L = Lanes<T>;
  typename L::Vector sum[kTileRows][C];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c)
      sum[r][c] = p.add ? L::load(out + r * p.out_stride + c * L::kWidth) : L::zero();
  }
  const T *v0 = values[0], *v1 = values[1], *v2 = values[2], *v3 = values[3], *v4 = values[4],
          *v5 = values[5];
  for (int64_t s = 0; s < p.terms; ++s) {
    const int64_t at = s * p.value_step;
    const T* const value[kTileRows] = {v0 + at, v1 + at, v2 + at, v3 + at, v4 + at, v5 + at};
    // The terms stay in registers, and one factor beside them. Six factors would leave too few of
    // the 16 registers of AVX2 for the sums.
    typename L::Vector term[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) term[c] = L::load(x + c * L::kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const typename L::Vector factor = L::fill(*value[r]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = L::fma(factor, term[c], sum[r][c]);
    }
    x += p.x_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) L::store(out + r * p.out_stride + c * L::kWidth, sum[r][c]);
  }
}

template <class T, int C>
void dense_columns(const DenseProduct<T>& p, const T* x, T* out) {
  for (int64_t r = 0; r < p.rows; r += kTileRows) {
    p.prefetch->fetch(kLinesPerTile);
    dense_tile<T, C>(p, p.values + r, x, out + r * p.out_stride);
  }
}

template <class T>
void dense(const DenseProduct<T>& p) {
  using L = Lanes<T>;
  int64_t at = 0;
  for (; at + L::kTileVectors <= p.vectors; at += L::kTileVectors) {
    dense_columns<T, L::kTileVectors>(p, p.x + at * L::kWidth, p.out + at * L::kWidth);
  }
  const T* const x = p.x + at * L::kWidth;
  T* const out = p.out + at * L::kWidth;
  switch (p.vectors - at) {
    case 1:
      return dense_columns<T, 1>(p, x, out);
    case 2:
      return dense_columns<T, std::min(2, L::kTileVectors)>(p, x, out);
    case 3:
      return dense_columns<T, std::min(3, L::kTileVectors)>(p, x, out);
    default:
      return;
  }
}

// Products that skip zeros.

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
  __attribute__((always_inline)) void add(uint64_t word, const T* values, int64_t step, const T* x,
                                          int64_t x_stride) {
    for (; word != 0; word &= word - 1) {
      const int64_t s = std::countr_zero(word);
      const typename L::Vector factor = L::fill(values[s * step]);
      const T* const term = x + s * x_stride;
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) sum[c] = L::fma(factor, L::load(term + c * L::kWidth), sum[c]);
    }
  }
};

// One row after the other, with C vectors of it in registers.
template <class T, int C>
void sparse_columns(const SparseProduct<T>& p, int64_t first) {
  using L = Lanes<T>;
  for (int64_t r = 0; r < p.rows; ++r) {
    const uint64_t word = p.words[r];
    p.prefetch->fetch(kLinesPerRow);
    if (word == 0) continue;
    const T* const values = p.values + r * p.row_step;
    T* const out = p.out + r * p.out_stride + first;
    RowSums<T, C> sums;
    sums.load(out);
    // The sums of the next row come from the second cache.
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) __builtin_prefetch(out + p.out_stride + c * L::kWidth);
    sums.add(word, values, p.value_step, p.x + first, p.x_stride);
    sums.store(out);
  }
}

// Terms that both rows have are loaded once; then the other terms follow.
template <class T, int C>
PYG_BATCHGNN_INLINE void sparse_two_rows(const SparseProduct<T>& p, int64_t r, const T* x, int64_t x_stride,
                                         T* out) {
  using L = Lanes<T>;
  uint64_t word = p.words[r], next = p.words[r + 1];
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
  sums.add(word, values, 1, x, x_stride);
  next_sums.add(next, next_values, 1, x, x_stride);
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
  last.words += r;
  last.values += r * p.row_step;
  last.out += r * p.out_stride;
  last.rows = 1;
  sparse_columns<T, C>(last, first);
}

// Computes a product in pieces that the registers hold: table[n - 1] takes n vectors.
template <class T, class Product, size_t N>
PYG_BATCHGNN_INLINE void by_pieces(const Product& p,
                                   const std::array<void (*)(const Product&, int64_t), N>& table) {
  constexpr auto kMost = static_cast<int64_t>(N);
  const int64_t pieces = (p.vectors + kMost - 1) / kMost;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = p.vectors * piece / pieces, end = p.vectors * (piece + 1) / pieces;
    table[static_cast<size_t>(end - begin - 1)](p, begin * Lanes<T>::kWidth);
  }
}

template <class T>
using SparseColumns = void (*)(const SparseProduct<T>&, int64_t);

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
    by_pieces<T>(p, kByTwo);
  } else {
    by_pieces<T>(p, kTable);
  }
}

// Rounds to nearest, ties to even. A NaN stays a NaN.
PYG_BATCHGNN_INLINE uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7FC0u : rounded);
}

// Rounds all columns of a word.
template <class T>
PYG_BATCHGNN_INLINE void round_word(const T* from, uint16_t* to) {
  if constexpr (requires { Lanes<T>::round_word(from, to); }) {
    Lanes<T>::round_word(from, to);
  } else {
    for (int64_t i = 0; i < kWordBits; ++i) to[i] = to_bfloat16(static_cast<float>(from[i]));
  }
}

template <class T>
void read(const void* from, Element element, int64_t count, T* to) {
  switch (element) {
    case Element::kFloat32: {
      const auto* values = static_cast<const float*>(from);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(values[i]);
      return;
    }
    case Element::kFloat64: {
      const auto* values = static_cast<const double*>(from);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(values[i]);
      return;
    }
    case Element::kBFloat16: {
      const auto* values = static_cast<const Bfloat16*>(from);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(widen(values[i]));
      return;
    }
    case Element::kFloat16: {
      const auto* values = static_cast<const Half*>(from);
      float block[kWordBits];
      for (int64_t i = 0; i < count; i += kWordBits) {
        const int64_t size = std::min(kWordBits, count - i);
        vectors_of<float>(size, [&](int64_t j, const auto& part) __attribute__((always_inline)) {
          part.store(block + j, part.load(values + i + j));
        });
        for (int64_t j = 0; j < size; ++j) to[i + j] = static_cast<T>(block[j]);
      }
      return;
    }
    case Element::kInt8:
      return;  // decoded by decode_row
  }
}

template <class T>
void write(const T* from, int64_t count, Element element, void* to) {
  if (element == Element::kFloat32) {
    for (int64_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = static_cast<float>(from[i]);
  } else if (element == Element::kFloat64) {
    for (int64_t i = 0; i < count; ++i) static_cast<double*>(to)[i] = static_cast<double>(from[i]);
  } else {
    auto* const rounded = static_cast<uint16_t*>(to);
    int64_t i = 0;
    for (; i + kWordBits <= count; i += kWordBits) round_word(from + i, rounded + i);
    for (; i < count; ++i) rounded[i] = to_bfloat16(static_cast<float>(from[i]));
  }
}

// Writes the bits of columns [column, column + count) of a row, behind those written before.
PYG_BATCHGNN_INLINE void put_bits(uint8_t* row, int64_t column, int64_t count, uint64_t bits) {
  uint8_t* byte = row + column / 8;
  const int64_t inside = column % 8;
  if (inside == 0 && count == kWordBits) {
    std::memcpy(byte, &bits, sizeof(bits));
    return;
  }
  if (inside != 0) {
    *byte++ |= static_cast<uint8_t>(bits << inside);
    bits >>= 8 - inside;
    count -= 8 - inside;
  }
  for (; count > 0; count -= 8, bits >>= 8) *byte++ = static_cast<uint8_t>(bits);
}

PYG_BATCHGNN_INLINE uint64_t kept_bits(const Dropout& dropout, uint64_t row_key, int64_t column,
                                       int64_t count) {
  if (column % kDropoutColumnsPerWord == 0) {
    return kept_columns(dropout, row_key, column / kDropoutColumnsPerWord);
  }
  uint64_t bits = 0;
  for (int64_t c = 0; c < count; ++c) {
    bits |= static_cast<uint64_t>(dropout_keeps(dropout, row_key, column + c)) << c;
  }
  return bits;
}

PYG_BATCHGNN_INLINE uint64_t first_bits(int64_t count) {
  return count >= kWordBits ? ~0ull : (1ull << count) - 1;
}

// Finishes columns [at, at + count) of a row, at most kWordBits: in registers if constant.
template <class T>
PYG_BATCHGNN_INLINE void finish_word(const Finish<T>& f, typename Lanes<T>::Vector scale, int64_t row,
                                     int64_t at, int64_t count) {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  alignas(PrefetchQueue::kLine) T done[kWordBits];
  uint64_t bits = first_bits(count);
  const T* const raw = f.raw + row * f.raw_stride + at;
  uint64_t passing = 0;
#pragma GCC unroll 16
  for (int64_t i = 0; i < count; i += L::kWidth) {
    Vector value = L::load(raw + i);
    if (f.bias != nullptr) value = L::add(value, L::load(f.bias + at + i));
    passing |= L::passing(value) << i;
    L::store(done + i, value);
  }
  if (f.relu) bits &= passing;
  if (f.dropout != nullptr) bits &= kept_bits(*f.dropout, f.row_keys[row], f.first_column + at, count);
  if (f.mask != nullptr) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < count; i += L::kWidth) {
      L::store(done + i, L::keep(L::multiply(L::load(done + i), scale), bits >> i));
    }
    put_bits(f.mask + row * f.mask_stride, f.first_column + at, count, bits);
  }
  char* const out = static_cast<char*>(f.out) + (row * f.out_stride + at) * element_bytes(f.out_element);
  const int64_t bytes = count * element_bytes(f.out_element);
  if (!f.stream || bytes % PrefetchQueue::kLine != 0 ||
      reinterpret_cast<uintptr_t>(out) % PrefetchQueue::kLine != 0) {
    return write(done, count, f.out_element, out);
  }
  if (f.out_element == kElement<T>) return stream_lines(done, bytes, out);
  // The lines of half a word are whole, too.
  alignas(PrefetchQueue::kLine) T rounded[kWordBits];
  if (count == kWordBits && f.out_element == Element::kBFloat16) {
    round_word(done, reinterpret_cast<uint16_t*>(rounded));
  } else {
    write(done, count, f.out_element, rounded);
  }
  stream_lines(rounded, bytes, out);
}

template <class T>
void finish(const Finish<T>& f) {
  const auto scale = Lanes<T>::fill(f.dropout != nullptr ? static_cast<T>(f.dropout->scale()) : T{1});
  for (int64_t row = 0; row < f.rows; ++row) {
    int64_t at = 0;
    for (; at + kWordBits <= f.columns; at += kWordBits) finish_word(f, scale, row, at, kWordBits);
    if (at < f.columns) finish_word(f, scale, row, at, f.columns - at);
  }
}

template <class T>
PYG_BATCHGNN_INLINE uint64_t mask_word(const MaskedGrad<T>& g, int64_t row, int64_t at, int64_t count) {
  uint64_t bits = 0;
  if (g.mask == nullptr) return first_bits(count);
  std::memcpy(&bits, g.mask + row * g.mask_stride + at / 8, static_cast<size_t>((count + 7) / 8));
  return bits & first_bits(count);
}

template <class T>
void masked_grad(const MaskedGrad<T>& g) {
  using L = Lanes<T>;
  const int64_t words = (g.columns + kWordBits - 1) / kWordBits;
  const auto scale = L::fill(g.scale);
  for (int64_t row = 0; row < g.rows; ++row) {
    const char* const grad =
        static_cast<const char*>(g.grad) + row * g.grad_stride * element_bytes(g.element);
    for (int64_t word = 0; word < words; ++word) {
      const int64_t at = word * kWordBits, count = std::clamp<int64_t>(g.columns - at, 0, kWordBits);
      T* const out = g.out + row * g.out_stride + at;
      const T* values = out;
      if (g.element == kElement<T> && count == kWordBits) {
        values = reinterpret_cast<const T*>(grad) + at;
      } else {
        read(grad + at * element_bytes(g.element), g.element, count, out);
        for (int64_t i = count; i < kWordBits; ++i) out[i] = 0;
      }
      const uint64_t bits = mask_word(g, row, at, count);
      uint64_t nonzero = 0;
      for (int64_t i = 0; i < kWordBits; i += L::kWidth) {
        const auto value = L::keep(L::multiply(L::load(values + i), scale), bits >> i);
        nonzero |= L::nonzero(value) << i;
        L::store(out + i, value);
      }
      g.words[row * words + word] = nonzero;
    }
  }
}

template <class T>
void add(const T* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// Two gradients in one loop over columns.
//
// Two separate loops need one load per multiplication. Here a row of the gradient is loaded once
// and multiplied twice: by the element of the input, for the gradient of the weight, and by the
// weight, for a dot product.

constexpr int64_t kLinesPerColumn = 8;

// Adds all lanes of a to *first and those of b to *second.
template <class T>
PYG_BATCHGNN_INLINE void add_lanes(typename Lanes<T>::Vector a, typename Lanes<T>::Vector b, T* first,
                                   T* second) {
  using L = Lanes<T>;
  if constexpr (requires { L::add_lanes(a, b, first, second); }) return L::add_lanes(a, b, first, second);
  T lanes[2][L::kWidth];
  L::store(lanes[0], a);
  L::store(lanes[1], b);
  for (auto& one : lanes) {
    for (int64_t half = L::kWidth / 2; half != 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) one[i] += one[half + i];
    }
  }
  *first += lanes[0][0];
  *second += lanes[1][0];
}

// Dot products whose lanes are not added up yet. They wait in registers until the next ones have
// begun. Their chain of additions would keep later products out of the processor's window.
template <class T>
struct WaitingDots {
  typename Lanes<T>::Vector first, second;
  T *first_to, *second_to;

  __attribute__((always_inline)) void add_up() const { add_lanes<T>(first, second, first_to, second_to); }
};

// Multiplies C vectors of kRows rows of the gradient with the sums and weights of one column in
// registers. For a single row there is no second dot product; `nobody` takes its place.
template <class T, int C, int kRows>
PYG_BATCHGNN_INLINE void relu_backward_rows(const ReluBackwardProducts<T>& p, const int64_t (&rows)[kRows],
                                            int64_t first, int64_t column,
                                            const typename Lanes<T>::Vector* weight,
                                            typename Lanes<T>::Vector* sum, WaitingDots<T>& waiting,
                                            T* nobody) {
  using L = Lanes<T>;
  const T* grad[kRows];
  typename L::Vector input[kRows], dot[kRows];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
    grad[r] = p.grad + rows[r] * p.grad_stride + first;
    input[r] = L::fill(p.input[rows[r] * p.input_stride + column]);
    dot[r] = L::zero();
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      // Without this the compiler loads for each multiplication.
      const typename L::Vector values = in_register(L::load(grad[r] + c * L::kWidth));
      sum[c] = L::fma(input[r], values, sum[c]);
      dot[r] = L::fma(values, weight[c], dot[r]);
    }
    if (kRows == 2 && c == (C - 1) / 2) waiting.add_up();
  }
  T* const dots = p.dots + column * kWordBits;
  if constexpr (kRows == 1) return add_lanes<T>(dot[0], dot[0], dots + rows[0], nobody);
  waiting = {dot[0], dot[kRows - 1], dots + rows[0], dots + rows[kRows - 1]};
}

// Two rows at a time hide the latency of the additions.
template <class T, int C>
void relu_backward_columns(const ReluBackwardProducts<T>& p, int64_t first) {
  using L = Lanes<T>;
  T nobody[2] = {};
  WaitingDots<T> waiting{L::zero(), L::zero(), nobody, nobody + 1};
  for (int64_t column = 0; column < p.columns; ++column) {
    uint64_t word = p.words[column];
    p.prefetch->fetch(kLinesPerColumn);
    if (first == 0) std::fill_n(p.dots + column * kWordBits, kWordBits, T{0});
    if (word == 0) continue;
    const T* const from = p.weight + column * p.weight_stride + first;
    T* const to = p.sums + column * p.sums_stride + first;
    typename L::Vector sum[C], weight[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sum[c] = L::load(to + c * L::kWidth);
      weight[c] = L::load(from + c * L::kWidth);
      // Those of the next column come from the second cache.
      __builtin_prefetch(to + p.sums_stride + c * L::kWidth);
      __builtin_prefetch(from + p.weight_stride + c * L::kWidth);
    }
    while ((word & (word - 1)) != 0) {
      const int64_t one = std::countr_zero(word);
      word &= word - 1;
      relu_backward_rows<T, C, 2>(p, {one, std::countr_zero(word)}, first, column, weight, sum, waiting,
                                  nobody);
      word &= word - 1;
    }
    if (word != 0)
      relu_backward_rows<T, C, 1>(p, {std::countr_zero(word)}, first, column, weight, sum, waiting, nobody);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) L::store(to + c * L::kWidth, sum[c]);
  }
  waiting.add_up();
}

template <class T, int... C>
constexpr auto relu_backward_table(std::integer_sequence<int, C...>) {
  return std::array<void (*)(const ReluBackwardProducts<T>&, int64_t), sizeof...(C)>{
      &relu_backward_columns<T, C + 1>...};
}

template <class T>
void relu_backward(const ReluBackwardProducts<T>& p) {
  using L = Lanes<T>;
  static constexpr auto kTable =
      relu_backward_table<T>(std::make_integer_sequence<int, L::kReluBackwardVectors>{});
  if (p.vectors == 0) std::fill_n(p.dots, p.columns * kWordBits, T{0});
  by_pieces<T>(p, kTable);
}

void stream(const void* from, int64_t bytes, void* to) { stream_lines(from, bytes, to); }
void end_stream() { fence(); }

template <class T>
constexpr ProductKernels<T> kProductKernels{Lanes<T>::kWidth,  Lanes<T>::kWidth * Lanes<T>::kTileVectors,
                                            &dense<T>,         &sparse<T>,
                                            &relu_backward<T>, &finish<T>,
                                            &masked_grad<T>,   &read<T>,
                                            &write<T>,         &add<T>,
                                            &stream,           &end_stream};
