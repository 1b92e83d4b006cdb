#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/norm.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunkRows = 256;         // rows summed in the narrow type
constexpr int64_t kTaskElements = 1 << 17;  // enough work to hide the cost of a task

// Rows of a task: whole chunks.
int64_t task_rows(int64_t columns) {
  return std::max<int64_t>(1, kTaskElements / std::max<int64_t>(columns, 1) / kChunkRows) * kChunkRows;
}

// Calls body(task, first row, end) for every task. Rows without columns have none.
template <class Body>
void for_tasks(int64_t rows, int64_t columns, int64_t threads, const Body& body) {
  if (columns == 0) return;
  const int64_t each = task_rows(columns);
  run_tasks((rows + each - 1) / each, threads,
            [&](int64_t task, int64_t) { body(task, task * each, std::min(rows, (task + 1) * each)); });
}

template <class A>
void add(const A* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += static_cast<double>(from[i]);
}

}  // namespace

template <class T>
void layer_norm(const LayerNorm<T>& job, int64_t rows, int64_t threads) {
  for_tasks(rows, job.columns, threads,
            [&](int64_t, int64_t begin, int64_t end) { layer_norm_rows(job, begin, end); });
}

template <class T>
void layer_norm_grads(const LayerNormGrads<T>& job, int64_t rows, int64_t threads, double* d_weight,
                      double* d_bias) {
  const int64_t columns = job.columns, tasks = (rows + task_rows(columns) - 1) / task_rows(columns);
  Buffer<double> partial;
  double* const parts = partial.reserve(2 * columns * tasks + 1);
  std::fill_n(parts, 2 * columns * tasks, 0.0);
  for_tasks(rows, columns, threads, [&](int64_t task, int64_t begin, int64_t end) {
    Buffer<Wide<T>> scratch;
    Wide<T>* const sums = scratch.reserve(2 * columns);
    for (int64_t row = begin; row < end; row += kChunkRows) {
      layer_norm_grad_rows(job, row, std::min(end, row + kChunkRows), sums, sums + columns);
      add(sums, 2 * columns, parts + 2 * columns * task);
    }
  });
  std::fill_n(d_bias, columns, 0.0);
  std::fill_n(d_weight, columns, 0.0);
  for (int64_t task = 0; task < tasks; ++task) {
    add(parts + 2 * columns * task, columns, d_bias);
    add(parts + 2 * columns * task + columns, columns, d_weight);
  }
  for (int64_t c = 0; c < columns; ++c) {
    d_bias[c] *= static_cast<double>(job.scale);
    d_weight[c] *= static_cast<double>(job.scale);
  }
}

template <class T>
void activate(T* x, int64_t rows, int64_t columns, const Activation& activation, int64_t threads) {
  for_tasks(rows, columns, threads,
            [&](int64_t, int64_t begin, int64_t end) { activate_rows(x, columns, activation, begin, end); });
}

template <class T>
void mask_gradient(const T* grad, const uint8_t* mask, int64_t rows, int64_t columns, double scale,
                   int64_t threads, T* out) {
  for_tasks(rows, columns, threads, [&](int64_t, int64_t begin, int64_t end) {
    mask_rows(grad, mask, columns, scale, begin, end, out);
  });
}

#define PYG_BATCHGNN_INSTANTIATE(T)                                                             \
  template void layer_norm(const LayerNorm<T>&, int64_t, int64_t);                              \
  template void layer_norm_grads(const LayerNormGrads<T>&, int64_t, int64_t, double*, double*); \
  template void activate(T*, int64_t, int64_t, const Activation&, int64_t);                     \
  template void mask_gradient(const T*, const uint8_t*, int64_t, int64_t, double, int64_t, T*);

PYG_BATCHGNN_INSTANTIATE(float)
PYG_BATCHGNN_INSTANTIATE(double)
PYG_BATCHGNN_INSTANTIATE(Bfloat16)

}  // namespace pyg_batchgnn
