// sum_rows written once over `Lanes`, the vector of a kind of processor. Included inside that kind's
// namespace, behind the pragma that allows its instructions, by sum_rows_avx2.cpp and sum_rows_avx512.cpp.
//
// A row of sums stays in registers: columns are taken in chunks of at most Lanes::kVectors vectors. Where the
// last one is not full it begins earlier and takes some columns twice: a masked one would reach beyond the
// row, often into a line of memory that nobody has fetched. Only rows of less than a vector are masked.
//
// Lanes: V, kWidth, kVectors; zero, load<In>(at), load_part<In>(at, count), store(at, v), store_part, stream,
// store_bf16(at, v), store_bf16_part, broadcast(a), multiply(a, b), multiply_add(a, b, c).

constexpr int64_t kLine = 64;

template <class In, int N>
struct Chunk {
  int64_t column;
  int64_t last;  // columns of the last vector, 1 to kWidth

  bool masked() const { return column + (N - 1) * Lanes::kWidth + last < Lanes::kWidth; }
  // Where the last vector begins, from `column`.
  int64_t tail() const { return masked() ? 0 : (N - 2) * Lanes::kWidth + last; }

  const In* at(const char* row) const { return reinterpret_cast<const In*>(row) + column; }

  // Into the second cache: it has room for more lines under way than the first.
  void prefetch(const char* row) const {
    const auto begin = reinterpret_cast<uintptr_t>(at(row)) & ~static_cast<uintptr_t>(kLine - 1);
    const auto end = reinterpret_cast<uintptr_t>(at(row) + (N - 1) * Lanes::kWidth + last);
    for (uintptr_t line = begin; line < end; line += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
    }
  }

  __attribute__((always_inline)) void add(const char* row, float weight, typename Lanes::V (&sum)[N]) const {
    const In* from = at(row);
    const typename Lanes::V by = Lanes::broadcast(weight);
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) {
      sum[v] = Lanes::multiply_add(by, Lanes::load(from + v * Lanes::kWidth), sum[v]);
    }
    from += tail();
    const typename Lanes::V rest = masked() ? Lanes::load_part(from, last) : Lanes::load(from);
    sum[N - 1] = Lanes::multiply_add(by, rest, sum[N - 1]);
  }

  __attribute__((always_inline)) void store(float* to, bool stream, const typename Lanes::V (&sum)[N]) const {
    if (stream) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) Lanes::stream(to + v * Lanes::kWidth, sum[v]);
      return;
    }
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) Lanes::store(to + v * Lanes::kWidth, sum[v]);
    if (masked()) return Lanes::store_part(to, last, sum[N - 1]);
    Lanes::store(to + tail(), sum[N - 1]);
  }

  __attribute__((always_inline)) void store(Bfloat16* to, const typename Lanes::V (&sum)[N]) const {
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) Lanes::store_bfloat16(to + v * Lanes::kWidth, sum[v]);
    if (masked()) return Lanes::store_bfloat16_part(to, last, sum[N - 1]);
    Lanes::store_bfloat16(to + tail(), sum[N - 1]);
  }
};

template <class In, int N>
void sum_chunk(const SumRows<float>& task, int64_t column, int64_t last) {
  const Chunk<In, N> chunk{column, last};
  int64_t e = 0;
  for (int64_t r = 0; r < task.rows; ++r) {
    typename Lanes::V sum[N];
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[v] = Lanes::zero();
    for (const int64_t end = task.ptr[r + 1] - task.base; e < end; ++e) {
      chunk.prefetch(task.source[e + task.ahead]);
      chunk.add(task.source[e], task.weight[e], sum);
    }
    const typename Lanes::V scale = Lanes::broadcast(task.scale[r]);
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[v] = Lanes::multiply(sum[v], scale);
    if (task.self[r] != nullptr) chunk.add(task.self[r], task.self_scale[r], sum);
    const int64_t at = r * task.columns + column;
    if (task.out_element == Element::kBfloat16) {
      chunk.store(reinterpret_cast<Bfloat16*>(task.out) + at, sum);
    } else {
      chunk.store(reinterpret_cast<float*>(task.out) + at, task.stream, sum);
    }
  }
}

// Calls sum_chunk for `vectors` vectors, a number known only when the program runs.
template <class In, int N>
void sum_vectors(const SumRows<float>& task, int64_t column, int64_t columns, int64_t vectors) {
  if constexpr (N > 0) {
    if (vectors < N) return sum_vectors<In, N - 1>(task, column, columns, vectors);
    sum_chunk<In, N>(task, column, columns - (N - 1) * Lanes::kWidth);
  }
}

template <class In>
void sum_columns(const SumRows<float>& task) {
  constexpr int64_t kChunk = Lanes::kVectors * Lanes::kWidth;
  for (int64_t column = 0; column < task.columns; column += kChunk) {
    const int64_t columns = task.columns - column < kChunk ? task.columns - column : kChunk;
    const int64_t vectors = (columns + Lanes::kWidth - 1) / Lanes::kWidth;
    sum_vectors<In, Lanes::kVectors>(task, column, columns, vectors);
  }
  if (task.stream) Lanes::fence();
}

inline void sum_any(const SumRows<float>& task, Element element) {
  switch (element) {
    case Element::kFloat:
      return sum_columns<float>(task);
    case Element::kHalf:
      return sum_columns<Half>(task);
    case Element::kBfloat16:
      return sum_columns<Bfloat16>(task);
    case Element::kDouble:
      return;  // summed in double, elsewhere
  }
}
