// The loops of sum_rows.h without vectors: for the baseline, and for double.

constexpr int64_t kChunk = 64;  // columns that are summed at a time

template <class In, class A>
void add_row(const char* row, int64_t column, int64_t columns, A weight, A* sum) {
  const In* const from = reinterpret_cast<const In*>(row) + column;
  for (int64_t c = 0; c < columns; ++c) sum[c] += weight * static_cast<A>(widen(from[c]));
}

template <class Out, class A>
void store_row(const A* sum, int64_t columns, char* out) {
  for (int64_t c = 0; c < columns; ++c) reinterpret_cast<Out*>(out)[c] = narrow<Out>(sum[c]);
}

template <class In, class A>
void sum_chunk(const SumRows<A>& task, int64_t r, int64_t column, int64_t columns) {
  A sum[kChunk] = {};
  for (int64_t e = task.ptr[r] - task.base; e < task.ptr[r + 1] - task.base; ++e) {
    add_row<In>(task.source[e], column, columns, task.weight[e], sum);
  }
  for (int64_t c = 0; c < columns; ++c) sum[c] *= task.scale[r];
  if (task.self[r] != nullptr) add_row<In>(task.self[r], column, columns, task.self_scale[r], sum);
  if (task.decoding) {
    const Decoding by = task.decoding.from(column);
    for (int64_t c = 0; c < columns; ++c) sum[c] = sum[c] * A{by.scale[c]} + task.total[r] * A{by.offset[c]};
  }
  const int64_t at = r * task.columns + column;
  if constexpr (std::is_same_v<A, double>) {
    store_row<double>(sum, columns, task.out + at * 8);
  } else if (task.out_element == Element::kBFloat16) {
    store_row<Bfloat16>(sum, columns, task.out + at * 2);
  } else {
    store_row<float>(sum, columns, task.out + at * 4);
  }
}

template <class In, class A>
void sum_columns(const SumRows<A>& task) {
  for (int64_t r = 0; r < task.rows; ++r) {
    for (int64_t column = 0; column < task.columns; column += kChunk) {
      sum_chunk<In>(task, r, column, std::min(kChunk, task.columns - column));
    }
  }
}

template <class A>
void sum_any_rows(const SumRows<A>& task, Element element) {
  with_element(element, [&](auto in) { sum_columns<decltype(in)>(task); });
}
