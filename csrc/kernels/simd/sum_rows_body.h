// The loops of sum_rows.h for float.
//
// A row of sums stays in registers. Columns are taken in chunks of at most kSumVectors vectors. If
// the last vector is not full, it begins earlier and takes some columns twice. A masked one would
// reach beyond the row, often into a line that is not in the cache. Only rows shorter than a vector
// are masked.

using SumLanes = Lanes<float>;

constexpr int64_t kLine = 64;

// Reads a vector of a row, beginning at `column`, as it is stored.
struct AsStored {
  using V = SumLanes::Vector;
  __attribute__((always_inline)) V whole(V x, int64_t) const { return x; }
  __attribute__((always_inline)) V part(V x, int64_t, int64_t) const { return x; }
};

// Reads a vector normalised and behind a ReLU, with the operations and so the bits of `batch_norm`.
struct Normed {
  using V = SumLanes::Vector;
  Affine<float> by;

  __attribute__((always_inline)) static V of(V x, V center, V scale, V shift) {
    return SumLanes::relu(SumLanes::fma(SumLanes::subtract(x, center), scale, shift));
  }
  __attribute__((always_inline)) V whole(V x, int64_t column) const {
    const auto values = [&](const float* all) { return SumLanes::load(all + column); };
    return of(x, values(by.center), values(by.scale), values(by.shift));
  }
  __attribute__((always_inline)) V part(V x, int64_t column, int64_t count) const {
    const auto values = [&](const float* all) { return SumLanes::load(all + column, count); };
    return of(x, values(by.center), values(by.scale), values(by.shift));
  }
};

template <class In, class Read, int N>
struct Chunk {
  Read read;
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

  __attribute__((always_inline)) void add(const char* row, float weight, SumLanes::Vector (&sum)[N]) const {
    const In* from = at(row);
    const SumLanes::Vector by = SumLanes::fill(weight);
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) {
      const int64_t at = v * SumLanes::kWidth;
      sum[v] = SumLanes::fma(by, read.whole(SumLanes::load(from + at), column + at), sum[v]);
    }
    const int64_t at = tail();
    const SumLanes::Vector rest = masked() ? read.part(SumLanes::load(from + at, last), column + at, last)
                                           : read.whole(SumLanes::load(from + at), column + at);
    sum[N - 1] = SumLanes::fma(by, rest, sum[N - 1]);
  }

  template <class Out>
  __attribute__((always_inline)) void store(Out* to, bool stream, const SumLanes::Vector (&sum)[N]) const {
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

// The sums over the rows of a gradient, in float. Columns that are taken twice have two places.
template <class In, class Read, int N>
class Tally {
 public:
  using V = SumLanes::Vector;
  Tally(const GradientTally<float>& of, int64_t columns, const Chunk<In, Read, N>& chunk)
      : of_(of), columns_(columns), chunk_(chunk) {
    if (of.x == nullptr) return;
    for (int c = 0; c < N * SumLanes::kWidth; ++c) sum_[c] = product_[c] = 0;
  }

  void add(int64_t row, const V (&grad)[N]) {
    if (of_.x == nullptr) return;
    const float* const x = of_.x + row * columns_ + chunk_.column;
#pragma GCC unroll 16
    for (int v = 0; v < N - 1; ++v) add_vector(x, v * SumLanes::kWidth, v, grad[v]);
    if (!chunk_.masked()) return add_vector(x, chunk_.tail(), N - 1, grad[N - 1]);
    float few[4][SumLanes::kWidth] = {};
    const float* const from[] = {x, of_.affine.center, of_.affine.scale, of_.affine.shift};
    for (int i = 0; i < 4; ++i) {
      for (int64_t c = 0; c < chunk_.last; ++c) few[i][c] = from[i][c];
    }
    add_to(0, SumLanes::load(few[0]), {few[1], few[2], few[3]}, grad[0]);
  }

  // Adds every column once to the wanted sums.
  void finish() const {
    if (of_.x == nullptr) return;
    const int64_t whole = (N - 1) * SumLanes::kWidth;
    const int64_t behind = chunk_.masked() ? 0 : SumLanes::kWidth - chunk_.last;
    for (int64_t c = 0; c < whole + chunk_.last; ++c) {
      const int64_t at = c < whole ? c : c + behind;
      of_.sum[chunk_.column + c] += static_cast<double>(sum_[at]);
      of_.product[chunk_.column + c] += static_cast<double>(product_[at]);
    }
  }

 private:
  __attribute__((always_inline)) void add_vector(const float* x, int64_t at, int v, V grad) {
    const int64_t column = chunk_.column + at;
    add_to(v, SumLanes::load(x + at),
           {of_.affine.center + column, of_.affine.scale + column, of_.affine.shift + column}, grad);
  }

  __attribute__((always_inline)) void add_to(int v, V x, const Affine<float>& by, V grad) {
    const V d = SumLanes::subtract(x, SumLanes::load(by.center));
    const V z = SumLanes::fma(d, SumLanes::load(by.scale), SumLanes::load(by.shift));
    const V g = SumLanes::relu_backward(z, grad);
    float *const sum = sum_ + v * SumLanes::kWidth, *const product = product_ + v * SumLanes::kWidth;
    SumLanes::store(sum, SumLanes::fma(g, SumLanes::fill(1.0f), SumLanes::load(sum)));
    SumLanes::store(product, SumLanes::fma(g, d, SumLanes::load(product)));
  }

  const GradientTally<float>& of_;
  int64_t columns_;
  const Chunk<In, Read, N>& chunk_;
  alignas(kLine) float sum_[N * SumLanes::kWidth];
  alignas(kLine) float product_[N * SumLanes::kWidth];
};

template <class In, int N, class Read>
void sum_chunk(const SumRows<float>& task, Read read, int64_t column, int64_t last) {
  const Chunk<In, Read, N> chunk{read, column, last};
  Tally<In, Read, N> tally(task.tally, task.columns, chunk);
  int64_t e = 0;
  for (int64_t r = 0; r < task.rows; ++r) {
    SumLanes::Vector sum[N];
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[v] = SumLanes::zero();
    for (const int64_t end = task.ptr[r + 1] - task.base; e < end; ++e) {
      chunk.prefetch(task.source[e + task.ahead]);
      chunk.add(task.source[e], task.weight[e], sum);
    }
    const SumLanes::Vector scale = SumLanes::fill(task.scale[r]);
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[v] = SumLanes::multiply(sum[v], scale);
    if (task.self[r] != nullptr) chunk.add(task.self[r], task.self_scale[r], sum);
    tally.add(r, sum);
    const int64_t at = r * task.columns + column;
    if (task.out_element == Element::kBFloat16) {
      chunk.store(reinterpret_cast<Bfloat16*>(task.out) + at, task.stream, sum);
    } else {
      chunk.store(reinterpret_cast<float*>(task.out) + at, task.stream, sum);
    }
  }
  tally.finish();
}

// Calls sum_chunk for `vectors` vectors, a number known only when the program runs.
template <class In, int N, class Read>
void sum_vectors(const SumRows<float>& task, Read read, int64_t column, int64_t columns, int64_t vectors) {
  if constexpr (N > 0) {
    if (vectors < N) return sum_vectors<In, N - 1>(task, read, column, columns, vectors);
    sum_chunk<In, N>(task, read, column, columns - (N - 1) * SumLanes::kWidth);
  }
}

template <class In, class Read = AsStored>
void sum_columns(const SumRows<float>& task, Read read = {}) {
  constexpr int64_t kChunk = SumLanes::kSumVectors * SumLanes::kWidth;
  for (int64_t column = 0; column < task.columns; column += kChunk) {
    const int64_t columns = task.columns - column < kChunk ? task.columns - column : kChunk;
    const int64_t vectors = (columns + SumLanes::kWidth - 1) / SumLanes::kWidth;
    sum_vectors<In, SumLanes::kSumVectors>(task, read, column, columns, vectors);
  }
  if (task.stream) fence();
}

inline void sum_any_rows(const SumRows<float>& task, Element element) {
  if (task.normed.center != nullptr) return sum_columns<float>(task, Normed{task.normed});
  switch (element) {
    case Element::kFloat32:
      return sum_columns<float>(task);
    case Element::kFloat16:
      return sum_columns<Half>(task);
    case Element::kBFloat16:
      return sum_columns<Bfloat16>(task);
    case Element::kFloat64:
      return;  // summed in double by another kernel
  }
}
