#include "kernels/simd/sum_rows.h"

#include <algorithm>

#include "kernels/simd/dispatch.h"
#include "kernels/simd/sum_rows_levels.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunk = 64;  // columns summed at once

template <class In, class A>
void add_row(const In* row, int64_t columns, A weight, A* sum) {
  for (int64_t c = 0; c < columns; ++c) sum[c] += weight * static_cast<A>(widen(row[c]));
}

template <class Out, class A>
void store_row(const A* sum, int64_t columns, char* out) {
  for (int64_t c = 0; c < columns; ++c) reinterpret_cast<Out*>(out)[c] = narrow<Out>(sum[c]);
}

template <class In, class A>
void sum_chunk(const SumRows<A>& task, int64_t r, int64_t column, int64_t columns) {
  A sum[kChunk] = {};
  for (int64_t e = task.ptr[r] - task.base; e < task.ptr[r + 1] - task.base; ++e) {
    add_row(reinterpret_cast<const In*>(task.source[e]) + column, columns, task.weight[e], sum);
  }
  for (int64_t c = 0; c < columns; ++c) sum[c] *= task.scale[r];
  if (task.self[r] != nullptr) {
    add_row(reinterpret_cast<const In*>(task.self[r]) + column, columns, task.self_scale[r], sum);
  }
  const int64_t at = r * task.columns + column;
  if constexpr (std::is_same_v<A, double>) {
    store_row<double>(sum, columns, task.out + at * 8);
  } else if (task.out_element == Element::kBfloat16) {
    store_row<Bfloat16>(sum, columns, task.out + at * 2);
  } else {
    store_row<float>(sum, columns, task.out + at * 4);
  }
}

template <class A>
void sum_rows_baseline(const SumRows<A>& task, Element element) {
  with_element(element, [&](auto in) {
    for (int64_t r = 0; r < task.rows; ++r) {
      for (int64_t column = 0; column < task.columns; column += kChunk) {
        sum_chunk<decltype(in)>(task, r, column, std::min(kChunk, task.columns - column));
      }
    }
  });
}

}  // namespace

void sum_rows(const SumRows<float>& task, Element element) {
#if defined(__x86_64__)
  if (simd_level() == Simd::kAvx512) return sum_rows_avx512(task, element);
  if (simd_level() == Simd::kAvx2) return sum_rows_avx2(task, element);
#endif
  sum_rows_baseline(task, element);
}

void sum_rows(const SumRows<double>& task, Element element) { sum_rows_baseline(task, element); }

}  // namespace pyg_batchgnn
