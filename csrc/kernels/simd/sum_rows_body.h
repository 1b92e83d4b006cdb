// The loops of sum_rows.h; of double at the baseline alone.
//
// A row of sums stays in registers. Columns are taken in chunks of at most kSumVectors vectors. If
// the last vector is not full, it begins earlier and takes some columns twice. A masked one would
// reach beyond the row, often into a line out of the cache. Only shorter rows are masked.

constexpr int64_t kLine = 64;

template <class In, class A, int N>
struct Chunk {
  using SumLanes = Lanes<A>;
  int64_t column;
  int64_t last;  // columns of the last vector, 1 to kWidth

  bool masked() const { return column + (N - 1) * SumLanes::kWidth + last < SumLanes::kWidth; }
  // Returns the begin of the last vector, from `column`.
  int64_t tail() const { return masked() ? 0 : (N - 2) * SumLanes::kWidth + last; }

  const In* at(const char* row) const { return reinterpret_cast<const In*>(row) + column; }

  // Prefetches into the second cache, which can wait for more lines than the first.
  void prefetch(const char* row) const {
    const auto begin = reinterpret_cast<uintptr_t>(at(row)) & ~static_cast<uintptr_t>(kLine - 1);
    const auto end = reinterpret_cast<uintptr_t>(at(row) + (N - 1) * SumLanes::kWidth + last);
    for (uintptr_t line = begin; line < end; line += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
    }
  }

  __attribute__((always_inline)) void add(const char* row, A weight,
                                          typename SumLanes::Vector (&sum)[N]) const {
    const In* from = at(row);
    const auto by = SumLanes::fill(weight);
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) {
      const int64_t at = v * SumLanes::kWidth;
      sum[v] = SumLanes::fma(by, SumLanes::load(from + at), sum[v]);
    }
    const int64_t at = tail();
    const auto rest = masked() ? SumLanes::load(from + at, last) : SumLanes::load(from + at);
    sum[N - 1] = SumLanes::fma(by, rest, sum[N - 1]);
  }

  __attribute__((always_inline)) void decode(Decoding by, A total,
                                             typename SumLanes::Vector (&sum)[N]) const {
    const auto all = SumLanes::fill(total);
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) {
      const int64_t at = v < N - 1 ? v * SumLanes::kWidth : tail();
      const bool part = v == N - 1 && masked();
      const auto scale = part ? SumLanes::load(by.scale + at, last) : SumLanes::load(by.scale + at);
      const auto offset = part ? SumLanes::load(by.offset + at, last) : SumLanes::load(by.offset + at);
      sum[v] = SumLanes::fma(sum[v], scale, SumLanes::multiply(all, offset));
    }
  }

  template <class Out>
  __attribute__((always_inline)) void store(Out* to, bool stream,
                                            const typename SumLanes::Vector (&sum)[N]) const {
    if (stream) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) SumLanes::stream(to + v * SumLanes::kWidth, sum[v]);
      return;
    }
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) SumLanes::store(to + v * SumLanes::kWidth, sum[v]);
    if (masked()) return SumLanes::store(to, sum[N - 1], last);
    SumLanes::store(to + tail(), sum[N - 1]);
  }
};

template <class In, int N, class A>
void sum_chunk(const SumRows<A>& task, int64_t column, int64_t last) {
  using SumLanes = Lanes<A>;
  const Chunk<In, A, N> chunk{column, last};
  int64_t e = 0;
  for (int64_t r = 0; r < task.rows; ++r) {
    typename SumLanes::Vector sum[N];
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[v] = SumLanes::zero();
    for (const int64_t end = task.ptr[r + 1] - task.base; e < end; ++e) {
      chunk.prefetch(task.source[e + task.ahead]);
      chunk.add(task.source[e], task.weight[e], sum);
    }
    const auto scale = SumLanes::fill(task.scale[r]);
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[v] = SumLanes::multiply(sum[v], scale);
    if (task.self[r] != nullptr) chunk.add(task.self[r], task.self_scale[r], sum);
    if (task.decoding) chunk.decode(task.decoding.from(column), task.total[r], sum);
    const int64_t at = r * task.columns + column;
    if (task.out_element == Element::kBFloat16) {
      chunk.store(reinterpret_cast<Bfloat16*>(task.out) + at, task.stream, sum);
    } else {
      chunk.store(reinterpret_cast<A*>(task.out) + at, task.stream, sum);
    }
  }
}

// Calls sum_chunk for `vectors` vectors, a number known only when the program runs.
template <class In, int N, class A>
void sum_vectors(const SumRows<A>& task, int64_t column, int64_t columns, int64_t vectors) {
  if constexpr (N > 0) {
    if (vectors < N) return sum_vectors<In, N - 1>(task, column, columns, vectors);
    sum_chunk<In, N>(task, column, columns - (N - 1) * Lanes<A>::kWidth);
  }
}

template <class In, class A>
void sum_columns(const SumRows<A>& task) {
  using SumLanes = Lanes<A>;
  constexpr int64_t kChunk = SumLanes::kSumVectors * SumLanes::kWidth;
  for (int64_t column = 0; column < task.columns; column += kChunk) {
    const int64_t columns = task.columns - column < kChunk ? task.columns - column : kChunk;
    const int64_t vectors = (columns + SumLanes::kWidth - 1) / SumLanes::kWidth;
    sum_vectors<In, SumLanes::kSumVectors>(task, column, columns, vectors);
  }
  if (task.stream) fence();
}

template <class A>
void sum_any_rows(const SumRows<A>& task, Element element) {
  with_element(element, [&](auto in) {
    // float64 is summed in double alone.
    using In = decltype(in);
    if constexpr (std::is_same_v<A, double> || !std::is_same_v<In, double>) sum_columns<In>(task);
  });
}
