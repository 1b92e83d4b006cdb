// Products of table rows with a few vectors, and sums of rows with a few weights each. Included by
// attention_body.h.
//
// Registers hold the results for several heads at once, so that a row is read once for all of them.
// Meanwhile the row that is `ahead` entries later in the list is prefetched, one line at a time:
// even lines in the sums and odd lines in the dots, so that memory is busy during both. With 0 the
// prefetch has no effect.

// out[e * heads + h] = rows[e] . vectors[h], for kRows rows and kHeads heads.
template <int kRows, int kHeads, class T>
inline void dots_of(const T* const* rows, const Wide<T>* vectors, int64_t stride, int64_t columns,
                    Wide<T>* out, int64_t heads, int64_t ahead) {
  using L = Lanes<Wide<T>>;
  typename L::Vector sums[kRows][kHeads];
  for (auto& row : sums) {
    for (auto& sum : row) sum = L::zero();
  }
  const auto step = [&](auto load, int64_t k) __attribute__((always_inline)) {
    typename L::Vector x[kRows];
#pragma GCC unroll 8
    for (int e = 0; e < kRows; ++e) x[e] = load(rows[e] + k);
    if ((k / L::kWidth) % 2 == 1) {
#pragma GCC unroll 8
      for (int e = 0; e < kRows; ++e) __builtin_prefetch(rows[e + ahead] + k, 0, 2);
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const auto w = load(vectors + h * stride + k);
#pragma GCC unroll 8
      for (int e = 0; e < kRows; ++e) sums[e][h] = L::fma(x[e], w, sums[e][h]);
    }
  };
  int64_t k = 0;
  for (; k + L::kWidth <= columns; k += L::kWidth) {
    step([](const auto* p) __attribute__((always_inline)) { return L::load(p); }, k);
  }
  if (k < columns) {
    const int64_t rest = columns - k;
    step([rest](const auto* p) __attribute__((always_inline)) { return L::load(p, rest); }, k);
  }
#pragma GCC unroll 8
  for (int e = 0; e < kRows; ++e) {
    if constexpr (kHeads == 4) {
      L::sum4(sums[e], out + e * heads);
    } else {
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) out[e * heads + h] = L::sum(sums[e][h]);
    }
  }
}

// Computes all heads of kRows rows.
template <int kRows, class T>
inline void dots(const T* const* rows, const Wide<T>* vectors, int64_t stride, int64_t columns, Wide<T>* out,
                 int64_t heads, int64_t ahead) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) {
    dots_of<kRows, 4>(rows, vectors + h * stride, stride, columns, out + h, heads, ahead);
  }
  for (; h + 2 <= heads; h += 2) {
    dots_of<kRows, 2>(rows, vectors + h * stride, stride, columns, out + h, heads, ahead);
  }
  if (h < heads) dots_of<kRows, 1>(rows, vectors + h * stride, stride, columns, out + h, heads, ahead);
}

enum class Into { kFresh, kAdd };

// Whether the last vector of columns may have fewer of them. The loop over whole vectors does not
// ask.
enum class Tail { kWhole, kPart };

// out[h * stride + k] (+)= sum over e of factors[e * heads + h] * rows[e][k], for kHeads heads and
// kVectors vectors of columns, the last of which has `rest` columns, or all if rest is 0.
// Loops are unrolled by hand: the compiler may otherwise keep the sums on the stack.
template <int kHeads, int kVectors, Tail kTail, class T>
inline void sums_of(const T* const* rows, int64_t count, const Wide<T>* factors, int64_t heads, int64_t rest,
                    Wide<T>* out, int64_t stride, int64_t k, Into into, int64_t ahead) {
  using L = Lanes<Wide<T>>;
  constexpr int kFull = kVectors - 1;
  const auto load = [rest](const auto* p, int v) __attribute__((always_inline)) {
    return kTail == Tail::kPart && v == kFull && rest != 0 ? L::load(p, rest) : L::load(p);
  };
  typename L::Vector sums[kHeads][kVectors];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[h][v] = into == Into::kAdd ? load(out + h * stride + k + v * L::kWidth, v) : L::zero();
    }
  }
  for (int64_t e = 0; e < count; ++e) {
    typename L::Vector x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[v] = load(rows[e] + k + v * L::kWidth, v);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += 2) __builtin_prefetch(rows[e + ahead] + k + v * L::kWidth, 0, 2);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const auto factor = L::fill(factors[e * heads + h]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[h][v] = L::fma(factor, x[v], sums[h][v]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Wide<T>* const to = out + h * stride + k + v * L::kWidth;
      if (kTail == Tail::kPart && v == kFull && rest != 0) {
        L::store(to, sums[h][v], rest);
      } else {
        L::store(to, sums[h][v]);
      }
    }
  }
}

template <int kHeads, class T>
inline void sums_of_heads(const T* const* rows, int64_t count, const Wide<T>* factors, int64_t heads,
                          int64_t columns, Wide<T>* out, int64_t stride, Into into, int64_t ahead) {
  using L = Lanes<Wide<T>>;
  constexpr int kVectors = L::kRegisters == 32 ? 4 : 2;
  constexpr int64_t kColumns = kVectors * L::kWidth;
  int64_t k = 0;
  for (; k + kColumns <= columns; k += kColumns) {
    sums_of<kHeads, kVectors, Tail::kWhole>(rows, count, factors, heads, 0, out, stride, k, into, ahead);
  }
  const int64_t rest = (columns - k) % L::kWidth;
  switch ((columns - k + L::kWidth - 1) / L::kWidth) {
    case 4:
      return sums_of<kHeads, 4, Tail::kPart>(rows, count, factors, heads, rest, out, stride, k, into, ahead);
    case 3:
      return sums_of<kHeads, 3, Tail::kPart>(rows, count, factors, heads, rest, out, stride, k, into, ahead);
    case 2:
      return sums_of<kHeads, 2, Tail::kPart>(rows, count, factors, heads, rest, out, stride, k, into, ahead);
    case 1:
      return sums_of<kHeads, 1, Tail::kPart>(rows, count, factors, heads, rest, out, stride, k, into, ahead);
    default:
      return;
  }
}

// Sums rows for all heads: out [heads, columns] with `stride` numbers between heads.
template <class T>
inline void sums(const T* const* rows, int64_t count, const Wide<T>* factors, int64_t heads, int64_t columns,
                 Wide<T>* out, int64_t stride, Into into, int64_t ahead) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) {
    sums_of_heads<4>(rows, count, factors + h, heads, columns, out + h * stride, stride, into, ahead);
  }
  for (; h + 2 <= heads; h += 2) {
    sums_of_heads<2>(rows, count, factors + h, heads, columns, out + h * stride, stride, into, ahead);
  }
  if (h < heads) {
    sums_of_heads<1>(rows, count, factors + h, heads, columns, out + h * stride, stride, into, ahead);
  }
}

// out[k] += sum over h of factors[h] * vectors[h * columns + k].
template <class T>
inline void add_heads(const T* vectors, const Wide<T>* factors, int64_t heads, int64_t columns,
                      Wide<T>* out) {
  using L = Lanes<Wide<T>>;
  const int64_t whole = columns / L::kWidth * L::kWidth, rest = columns - whole;
  for (int64_t k = 0; k < whole; k += L::kWidth) {
    auto sum = L::load(out + k);
    for (int64_t h = 0; h < heads; ++h) {
      sum = L::fma(L::fill(factors[h]), L::load(vectors + h * columns + k), sum);
    }
    L::store(out + k, sum);
  }
  if (rest == 0) return;
  auto sum = L::load(out + whole, rest);
  for (int64_t h = 0; h < heads; ++h) {
    sum = L::fma(L::fill(factors[h]), L::load(vectors + h * columns + whole, rest), sum);
  }
  L::store(out + whole, sum, rest);
}

// Converts a row to another type.
template <class From, class To>
inline void convert_row(const From* from, int64_t count, To* to) {
  using L = Lanes<Wide<From>>;
  int64_t k = 0;
  for (; k + L::kWidth <= count; k += L::kWidth) L::store(to + k, L::load(from + k));
  if (k < count) L::store(to + k, L::load(from + k, count - k), count - k);
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
