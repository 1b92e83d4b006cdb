// Products of table rows with a few vectors, and sums of rows with a few weights each.
//
// With kSplit each head has columns of its own in a row, which begin `step` numbers behind those of
// the head before it. Otherwise `step` is 0.
//
// Registers hold the results for several heads at once, so that a row is read once for all of them.
// Meanwhile the row that is `ahead` entries later in the list is prefetched, one line at a time:
// even lines in the sums and odd lines in the dots, so that memory is busy during both. With 0 the
// prefetch has no effect.

// Columns of rows: `count` of them, which begin at `from` and, for head h, h * step further.
struct Columns {
  int64_t count, from = 0, step = 0;
};

// out[e * heads + h] = rows[e] . vectors[h], for kRows rows and kHeads heads.
template <int kRows, int kHeads, bool kSplit, class T>
inline void dots_of(const T* const* rows, const Columns& of, const Wide<T>* vectors, int64_t stride,
                    Wide<T>* out, int64_t heads, int64_t ahead) {
  using L = Lanes<Wide<T>>;
  typename L::Vector sums[kRows][kHeads];
  for (auto& row : sums) {
    for (auto& sum : row) sum = L::zero();
  }
  // Adds a vector of columns; `fetches` rows of later entries in odd lines.
  const auto add = [&](auto load, int64_t k, auto fetches) __attribute__((always_inline)) {
    typename L::Vector x[kRows];
    const auto read = [&](int h) __attribute__((always_inline)) {
      const int64_t at = kSplit ? of.from + h * of.step + k : k;
#pragma GCC unroll 8
      for (int e = 0; e < kRows; ++e) x[e] = load(rows[e] + at);
      if constexpr (decltype(fetches)::value || kSplit) {
#pragma GCC unroll 8
        for (int e = 0; e < kRows; ++e) __builtin_prefetch(rows[e + ahead] + at, 0, 2);
      }
    };
    if (!kSplit) read(0);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      if (kSplit) read(h);
      const auto w = load(vectors + h * stride + k);
#pragma GCC unroll 8
      for (int e = 0; e < kRows; ++e) sums[e][h] = L::fma(x[e], w, sums[e][h]);
    }
  };
  const auto whole = [](const auto* p) __attribute__((always_inline)) { return L::load(p); };
  constexpr std::integral_constant<bool, false> no{};
  constexpr std::integral_constant<bool, true> yes{};
  int64_t k = 0;
  for (; k + 2 * L::kWidth <= of.count; k += 2 * L::kWidth) {
    add(whole, k, no);
    add(whole, k + L::kWidth, yes);
  }
  if (k + L::kWidth <= of.count) {
    add(whole, k, no);
    k += L::kWidth;
  }
  if (k < of.count) {
    const int64_t rest = of.count - k;
    add([rest](const auto* p) __attribute__((always_inline)) { return L::load(p, rest); }, k, yes);
  }
  if constexpr (kRows == 4 && kHeads == 1) {
    const typename L::Vector column[4] = {sums[0][0], sums[1][0], sums[2][0], sums[3][0]};
    Wide<T> found[4];
    L::sum4(column, found);
    for (int e = 0; e < 4; ++e) out[e * heads] = found[e];
    return;
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

// Calls compute(n, h) for heads h to h + n - 1, with n = 4, 2 or 1, a constant of the compiler.
template <class Compute>
[[gnu::always_inline]] inline void for_heads(int64_t heads, const Compute& compute) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) compute(std::integral_constant<int, 4>{}, h);
  for (; h + 2 <= heads; h += 2) compute(std::integral_constant<int, 2>{}, h);
  if (h < heads) compute(std::integral_constant<int, 1>{}, h);
}

// Computes all heads of kRows rows.
template <int kRows, class T>
inline void dots(const T* const* rows, const Columns& of, const Wide<T>* vectors, int64_t stride,
                 Wide<T>* out, int64_t heads, int64_t ahead) {
  for_heads(heads, [&](auto many, int64_t h) __attribute__((always_inline)) {
    constexpr int kHeads = decltype(many)::value;
    const Columns own{of.count, of.from + h * of.step, of.step};
    if (of.step == 0) {
      dots_of<kRows, kHeads, false>(rows, own, vectors + h * stride, stride, out + h, heads, ahead);
    } else {
      dots_of<kRows, kHeads, true>(rows, own, vectors + h * stride, stride, out + h, heads, ahead);
    }
  });
}

enum class Into { kFresh, kAdd };

// Whether the last vector of columns may have fewer. The loop over whole vectors does not ask.
enum class Tail { kWhole, kPart };

// out[h * stride + k] (+)= sum over e of factors[e * heads + h] * rows[e][k], for kHeads heads and
// kVectors vectors of columns, the last of which has `rest` columns, or all if rest is 0.
// Loops are unrolled by hand: the compiler may otherwise keep the sums on the stack.
template <int kHeads, int kVectors, Tail kTail, bool kSplit, class T>
inline void sums_of(const T* const* rows, int64_t count, const Columns& of, const Wide<T>* factors,
                    int64_t heads, int64_t rest, Wide<T>* out, int64_t stride, int64_t k, Into into,
                    int64_t ahead) {
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
    const auto read = [&](int h) __attribute__((always_inline)) {
      const int64_t at = kSplit ? of.from + h * of.step + k : k;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) x[v] = load(rows[e] + at + v * L::kWidth, v);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; v += kSplit ? 1 : 2) {
        __builtin_prefetch(rows[e + ahead] + at + v * L::kWidth, 0, 2);
      }
    };
    if (!kSplit) read(0);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      if (kSplit) read(h);
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

template <int kHeads, bool kSplit, class T>
inline void sums_of_heads(const T* const* rows, int64_t count, const Columns& of, const Wide<T>* factors,
                          int64_t heads, Wide<T>* out, int64_t stride, Into into, int64_t ahead) {
  using L = Lanes<Wide<T>>;
  constexpr int kVectors = L::kRegisters == 32 ? 4 : 2;
  constexpr int64_t kColumns = kVectors * L::kWidth;
  int64_t k = 0, rest = 0;
  const auto sum = [&](auto vectors, auto tail) __attribute__((always_inline)) {
    sums_of<kHeads, decltype(vectors)::value, decltype(tail)::value, kSplit>(
        rows, count, of, factors, heads, rest, out, stride, k, into, ahead);
  };
  for (; k + kColumns <= of.count; k += kColumns) {
    sum(std::integral_constant<int, kVectors>{}, std::integral_constant<Tail, Tail::kWhole>{});
  }
  rest = (of.count - k) % L::kWidth;
  constexpr std::integral_constant<Tail, Tail::kPart> part{};
  switch ((of.count - k + L::kWidth - 1) / L::kWidth) {
    case 4:
      return sum(std::integral_constant<int, 4>{}, part);
    case 3:
      return sum(std::integral_constant<int, 3>{}, part);
    case 2:
      return sum(std::integral_constant<int, 2>{}, part);
    case 1:
      return sum(std::integral_constant<int, 1>{}, part);
    default:
      return;
  }
}

// Sums rows for all heads: out [heads, columns] with `stride` numbers between heads.
template <class T>
inline void sums(const T* const* rows, int64_t count, const Columns& of, const Wide<T>* factors,
                 int64_t heads, Wide<T>* out, int64_t stride, Into into, int64_t ahead) {
  for_heads(heads, [&](auto many, int64_t h) __attribute__((always_inline)) {
    constexpr int kHeads = decltype(many)::value;
    const Columns own{of.count, of.from + h * of.step, of.step};
    Wide<T>* const to = out + h * stride;
    if (of.step == 0) {
      sums_of_heads<kHeads, false>(rows, count, own, factors + h, heads, to, stride, into, ahead);
    } else {
      sums_of_heads<kHeads, true>(rows, count, own, factors + h, heads, to, stride, into, ahead);
    }
  });
}

// out[k] += sum over h of factors[h] * vectors[h * stride + k].
template <class T>
inline void add_heads(const T* vectors, int64_t stride, const Wide<T>* factors, int64_t heads,
                      int64_t columns, Wide<T>* out) {
  using L = Lanes<Wide<T>>;
  const int64_t whole = columns / L::kWidth * L::kWidth, rest = columns - whole;
  for (int64_t k = 0; k < whole; k += L::kWidth) {
    auto sum = L::load(out + k);
    for (int64_t h = 0; h < heads; ++h) {
      sum = L::fma(L::fill(factors[h]), L::load(vectors + h * stride + k), sum);
    }
    L::store(out + k, sum);
  }
  if (rest == 0) return;
  auto sum = L::load(out + whole, rest);
  for (int64_t h = 0; h < heads; ++h) {
    sum = L::fma(L::fill(factors[h]), L::load(vectors + h * stride + whole, rest), sum);
  }
  L::store(out + whole, sum, rest);
}
