// The loops of sum_rows.h without vectors: for the baseline, and for double.

constexpr int64_t kChunk = 64;  // columns that are summed at a time

// Reads an element of a column as it is stored.
template <class A>
struct AsStored {
  A operator()(A x, int64_t) const { return x; }
};

struct Normed {
  Affine<float> by;
  float operator()(float x, int64_t c) const {
    const float z = (x - by.center[c]) * by.scale[c] + by.shift[c];
    return z <= 0 ? 0.0f : z;  // a NaN stays one
  }
};

template <class In, class A, class Read>
void add_row(const char* row, const Read& read, int64_t column, int64_t columns, A weight, A* sum) {
  const In* const from = reinterpret_cast<const In*>(row) + column;
  for (int64_t c = 0; c < columns; ++c) sum[c] += weight * read(static_cast<A>(widen(from[c])), column + c);
}

template <class Out, class A>
void store_row(const A* sum, int64_t columns, char* out) {
  for (int64_t c = 0; c < columns; ++c) reinterpret_cast<Out*>(out)[c] = narrow<Out>(sum[c]);
}

template <class A>
void tally_chunk(const SumRows<A>& task, int64_t r, int64_t column, int64_t columns, const A* grad) {
  const Affine<A>& by = task.tally.affine;
  for (int64_t c = column; c < column + columns; ++c) {
    const A d = task.tally.x[r * task.columns + c] - by.center[c];
    const A g = d * by.scale[c] + by.shift[c] <= 0 ? A{0} : grad[c - column];
    task.tally.sum[c] += static_cast<double>(g);
    task.tally.product[c] += static_cast<double>(g * d);
  }
}

template <class In, class A, class Read>
void sum_chunk(const SumRows<A>& task, const Read& read, int64_t r, int64_t column, int64_t columns) {
  A sum[kChunk] = {};
  for (int64_t e = task.ptr[r] - task.base; e < task.ptr[r + 1] - task.base; ++e) {
    add_row<In>(task.source[e], read, column, columns, task.weight[e], sum);
  }
  for (int64_t c = 0; c < columns; ++c) sum[c] *= task.scale[r];
  if (task.self[r] != nullptr) add_row<In>(task.self[r], read, column, columns, task.self_scale[r], sum);
  if (task.tally.x != nullptr) tally_chunk(task, r, column, columns, sum);
  const int64_t at = r * task.columns + column;
  if constexpr (std::is_same_v<A, double>) {
    store_row<double>(sum, columns, task.out + at * 8);
  } else if (task.out_element == Element::kBFloat16) {
    store_row<Bfloat16>(sum, columns, task.out + at * 2);
  } else {
    store_row<float>(sum, columns, task.out + at * 4);
  }
}

template <class In, class A, class Read>
void sum_columns(const SumRows<A>& task, const Read& read) {
  for (int64_t r = 0; r < task.rows; ++r) {
    for (int64_t column = 0; column < task.columns; column += kChunk) {
      sum_chunk<In>(task, read, r, column, std::min(kChunk, task.columns - column));
    }
  }
}

template <class A>
void sum_any_rows(const SumRows<A>& task, Element element) {
  if constexpr (std::is_same_v<A, float>) {
    if (task.normed.center != nullptr) return sum_columns<float>(task, Normed{task.normed});
  }
  with_element(element, [&](auto in) { sum_columns<decltype(in)>(task, AsStored<A>{}); });
}
