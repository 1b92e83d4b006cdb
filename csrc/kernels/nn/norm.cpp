#include "kernels/nn/norm.h"

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/parallel.h"
#include "kernels/simd/norm.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunkRows = 256;         // rows summed in the narrow type
constexpr int64_t kFirstRows = 16;          // rows whose mean is the center of the first chunk
constexpr int64_t kTaskElements = 1 << 18;  // enough work to hide the cost of a task
constexpr int64_t kMaxTaskRows = 64 * kChunkRows;

int64_t task_rows(int64_t columns) {
  const int64_t rows = kTaskElements / std::max<int64_t>(columns, 1) / kChunkRows * kChunkRows;
  return std::clamp(rows, kChunkRows, kMaxTaskRows);
}

int64_t task_count(int64_t rows, int64_t columns) {
  const int64_t each = task_rows(columns);
  return (rows + each - 1) / each;
}

template <class T>
Rows<T> slice(const Rows<T>& x, int64_t begin, int64_t rows) {
  return {x.data + begin * x.columns, std::min(rows, x.rows - begin), x.columns};
}

// Calls body(task, rows of the task, first row) for every task.
template <class T, class Body>
void for_tasks(const Rows<T>& x, int64_t threads, const Body& body) {
  const int64_t each = task_rows(x.columns);
  run_tasks(task_count(x.rows, x.columns), threads,
            [&](int64_t task, int64_t) { body(task, slice(x, task * each, each), task * each); });
}

// Takes the moments of the rows of one task, chunk by chunk, in one pass over memory. The sums of a
// chunk are taken about the mean of the chunk before. They lose digits only if the means differ,
// and then the deviation between the chunks is as large as the loss. The center of the first chunk
// is the mean of its first rows.
template <class T>
void task_moments(const Rows<T>& x, ColumnMoments out) {
  using A = Wide<T>;
  Buffer<A> scratch;
  Buffer<double> chunk_moments;
  const int64_t columns = x.columns;
  A* const center = scratch.reserve(3 * columns);
  A* const sum = center + columns;
  A* const square = sum + columns;
  const ColumnMoments chunk{chunk_moments.reserve(2 * columns), chunk_moments.data() + columns};
  const auto take = [&](const Rows<T>& rows, ColumnMoments moments) {
    norm_kernels<T>().center_sums(rows, center, sum, square);
    to_moments(center, sum, square, rows.rows, columns, moments);
    std::transform(moments.mean, moments.mean + columns, center, [](double m) { return static_cast<A>(m); });
  };
  const Rows<T> first = slice(x, 0, kChunkRows);
  std::transform(x.data, x.data + columns, center, [](T value) { return widen(value); });
  take(slice(x, 0, kFirstRows), out);
  take(first, out);
  for (int64_t row = kChunkRows; row < x.rows; row += kChunkRows) {
    const Rows<T> rows = slice(x, row, kChunkRows);
    take(rows, chunk);
    join(out, row, chunk, rows.rows, columns);
  }
}

// The numbers of columns in the type of the computation.
template <class A>
class AffineColumns {
 public:
  AffineColumns(const Normalisation& by, int64_t columns) {
    A* const center = values_.reserve(3 * columns + 1);
    A *const scale = center + columns, *const shift = scale + columns;
    for (int64_t c = 0; c < columns; ++c) {
      const double factor = by.inverse_deviation[c] * (by.weight == nullptr ? 1.0 : by.weight[c]);
      center[c] = static_cast<A>(by.mean[c]);
      scale[c] = static_cast<A>(factor);
      // This corrects the rounding of the mean.
      const double rest = by.mean[c] - static_cast<double>(center[c]);
      shift[c] = static_cast<A>((by.bias == nullptr ? 0.0 : by.bias[c]) - rest * factor);
    }
    affine_ = {center, scale, shift};
  }

  const Affine<A>& get() const { return affine_; }

 private:
  Buffer<A> values_;
  Affine<A> affine_{};
};

// The sums over all rows of the gradient g behind the ReLU.
struct GradientSums {
  double* sum;      // of g
  double* product;  // of g * (x - center)
};

template <class T>
void task_gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                        GradientSums out) {
  Buffer<Wide<T>> scratch;
  Wide<T>* const sum = scratch.reserve(2 * x.columns);
  Wide<T>* const product = sum + x.columns;
  std::fill_n(out.sum, x.columns, 0.0);
  std::fill_n(out.product, x.columns, 0.0);
  for (int64_t row = 0; row < x.rows; row += kChunkRows) {
    norm_kernels<T>().gradient_sums(slice(x, row, kChunkRows), grad + row * x.columns, affine, epilogue, sum,
                                    product);
    for (int64_t c = 0; c < x.columns; ++c) {
      out.sum[c] += static_cast<double>(sum[c]);
      out.product[c] += static_cast<double>(product[c]);
    }
  }
}

template <class T>
void all_gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                       int64_t threads, GradientSums out) {
  const int64_t columns = x.columns;
  Buffer<double> partial;
  double* const parts = partial.reserve(2 * columns * task_count(x.rows, columns) + 1);
  for_tasks(x, threads, [&](int64_t task, const Rows<T>& rows, int64_t begin) {
    double* const part = parts + 2 * columns * task;
    task_gradient_sums(rows, grad + begin * columns, affine, epilogue, {part, part + columns});
  });
  std::fill_n(out.sum, columns, 0.0);
  std::fill_n(out.product, columns, 0.0);
  for (int64_t task = 0; task < task_count(x.rows, columns); ++task) {
    const double* const part = parts + 2 * columns * task;
    for (int64_t c = 0; c < columns; ++c) {
      out.sum[c] += part[c];
      out.product[c] += part[columns + c];
    }
  }
}

// d_x = g * scale - constant - (x - center) * slope. The last two terms are the gradients through
// mean and deviation of x: they remove the parts of g along 1 and along x - mean.
template <class A>
void project(const Normalisation& by, const Affine<A>& affine, const double* d_weight, const double* d_bias,
             int64_t rows, int64_t columns, A* constant, A* slope) {
  const double inverse = 1.0 / static_cast<double>(rows);
  for (int64_t c = 0; c < columns; ++c) {
    const double scale = by.inverse_deviation[c] * (by.weight == nullptr ? 1.0 : by.weight[c]);
    const double along = scale * by.inverse_deviation[c] * d_weight[c] * inverse;
    const double rest = by.mean[c] - static_cast<double>(affine.center[c]);
    slope[c] = static_cast<A>(along);
    constant[c] = static_cast<A>(scale * d_bias[c] * inverse - rest * along);
  }
}

}  // namespace

template <class T>
void column_moments(const Rows<T>& x, int64_t threads, double* mean, double* deviation) {
  const int64_t columns = x.columns;
  std::fill_n(mean, columns, 0.0);
  std::fill_n(deviation, columns, 0.0);
  Buffer<double> partial;
  double* const parts = partial.reserve(2 * columns * task_count(x.rows, columns) + 1);
  const auto part = [&](int64_t task) {
    double* const begin = parts + 2 * columns * task;
    return ColumnMoments{begin, begin + columns};
  };
  for_tasks(x, threads, [&](int64_t task, const Rows<T>& rows, int64_t) { task_moments(rows, part(task)); });
  const int64_t each = task_rows(columns);
  for (int64_t task = 0; task < task_count(x.rows, columns); ++task) {
    const int64_t before = task * each;
    join({mean, deviation}, before, part(task), std::min(each, x.rows - before), columns);
  }
}

template <class T>
void batch_norm(const Rows<T>& x, const Normalisation& by, Epilogue epilogue, int64_t threads, T* y) {
  const AffineColumns<Wide<T>> columns(by, x.columns);
  for_tasks(x, threads, [&](int64_t, const Rows<T>& rows, int64_t begin) {
    norm_kernels<T>().affine_rows(rows, columns.get(), epilogue, y + begin * x.columns);
  });
}

template <class T>
void batch_norm_grad_columns(const Rows<T>& x, const T* grad, const Normalisation& by, Epilogue epilogue,
                             Statistics statistics, int64_t threads, GradientColumns<Wide<T>> out,
                             double* d_weight, double* d_bias) {
  using A = Wide<T>;
  const int64_t columns = x.columns;
  const AffineColumns<A> by_column(by, columns);
  const Affine<A>& affine = by_column.get();
  all_gradient_sums(x, grad, affine, epilogue, threads, {d_bias, d_weight});
  for (int64_t c = 0; c < columns; ++c) {
    const double rest = by.mean[c] - static_cast<double>(affine.center[c]);
    d_weight[c] = (d_weight[c] - rest * d_bias[c]) * by.inverse_deviation[c];
  }
  std::copy_n(affine.center, columns, out.row(0));
  std::copy_n(affine.scale, columns, out.row(1));
  std::copy_n(affine.shift, columns, out.row(2));
  std::fill_n(out.row(3), 2 * columns, A(0));
  if (statistics == Statistics::kOwn && x.rows > 0) {
    project(by, affine, d_weight, d_bias, x.rows, columns, out.row(3), out.row(4));
  }
}

template <class T>
void batch_norm_grads(const Rows<T>& x, const T* grad, const Normalisation& by, Epilogue epilogue,
                      Statistics statistics, int64_t threads, T* d_x, double* d_weight, double* d_bias) {
  using A = Wide<T>;
  Buffer<A> values;
  const GradientColumns<A> of{values.reserve(GradientColumns<A>::kRows * x.columns + 1), x.columns};
  batch_norm_grad_columns(x, grad, by, epilogue, statistics, threads, of, d_weight, d_bias);
  const Affine<A> affine = of.affine();
  for_tasks(x, threads, [&](int64_t, const Rows<T>& rows, int64_t begin) {
    norm_kernels<T>().gradient_rows(rows, grad + begin * x.columns, affine, epilogue, of.constant(),
                                    of.slope(), d_x + begin * x.columns);
  });
}

#define PYG_BATCHGNN_INSTANTIATE(T)                                                                       \
  template void column_moments(const Rows<T>&, int64_t, double*, double*);                                \
  template void batch_norm(const Rows<T>&, const Normalisation&, Epilogue, int64_t, T*);                  \
  template void batch_norm_grad_columns(const Rows<T>&, const T*, const Normalisation&, Epilogue,         \
                                        Statistics, int64_t, GradientColumns<Wide<T>>, double*, double*); \
  template void batch_norm_grads(const Rows<T>&, const T*, const Normalisation&, Epilogue, Statistics,    \
                                 int64_t, T*, double*, double*);

PYG_BATCHGNN_INSTANTIATE(float)
PYG_BATCHGNN_INSTANTIATE(double)
PYG_BATCHGNN_INSTANTIATE(Bfloat16)

}  // namespace pyg_batchgnn
