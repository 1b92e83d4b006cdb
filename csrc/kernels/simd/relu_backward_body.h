// Two gradients in one loop over columns. Included by products_body.h.
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
// begun. Their additions are a chain that would keep later multiplications out of the window of the
// processor.
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

// Pieces are cut so that the registers hold their sums and weights.
template <class T>
void relu_backward(const ReluBackwardProducts<T>& p) {
  using L = Lanes<T>;
  static constexpr auto kTable =
      relu_backward_table<T>(std::make_integer_sequence<int, L::kReluBackwardVectors>{});
  const int64_t pieces = (p.vectors + L::kReluBackwardVectors - 1) / L::kReluBackwardVectors;
  if (pieces == 0) std::fill_n(p.dots, p.columns * kWordBits, T{0});
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = p.vectors * piece / pieces, end = p.vectors * (piece + 1) / pieces;
    kTable[static_cast<size_t>(end - begin - 1)](p, begin * L::kWidth);
  }
}
