#include "kernels/nn/folded_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/parallel.h"
#include "kernels/simd/norm.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunkRows = 512;  // rows summed in T about their own mean; joined in double
constexpr int64_t kSlabRows = 64;    // rows of some hundred columns that stay in the first cache

// The computed elements of a symmetric matrix: the upper triangle of the columns that fill vectors,
// and whole rows of the others. A column behind whole vectors would cost a vector in every row.
struct Halves {
  int64_t columns, whole;

  int64_t begin(int64_t row) const { return row < whole ? row : 0; }
  int64_t end(int64_t row) const { return row < whole ? whole : columns; }
  template <class T>
  T element(const T* matrix, int64_t r, int64_t c) const {  // r <= c
    return c < whole ? matrix[r * columns + c] : matrix[c * columns + r];
  }
};

// The mean of some rows and the sums [columns, columns] of products of deviations from it.
struct Moments {
  double* mean;
  double* products;
};

// Adds the nb rows of `b` to the na rows of `a` (Chan, Golub and LeVeque 1979). The rows of
// products of b lie `stride` apart.
template <class M, class T>
void join(const Halves& halves, Moments a, int64_t na, const M* b_mean, const T* b_products, int64_t stride,
          int64_t nb) {
  const double share = static_cast<double>(nb) / static_cast<double>(na + nb);
  const double between = share * static_cast<double>(na);
  const int64_t columns = halves.columns;
  Buffer<double> gaps;
  double* const gap = gaps.reserve(columns + 1);
  for (int64_t c = 0; c < columns; ++c) gap[c] = static_cast<double>(b_mean[c]) - a.mean[c];
  for (int64_t r = 0; r < columns; ++r) {
    const int64_t first = halves.begin(r);
    moment_kernels<T>().add_products(b_products + r * stride + first, gap[r] * between, gap + first,
                                     halves.end(r) - first, a.products + r * columns + first);
  }
  for (int64_t c = 0; c < columns; ++c) a.mean[c] += gap[c] * share;
}

template <class T>
class Chunk {
 public:
  Chunk(const LinearInput& x, const Halves& halves)
      : kernels_(product_kernels<T>()), x_(x), halves_(halves), stride_(block_stride<T>(x.columns)) {
    if (!in_place()) converted_.reserve(kChunkRows * stride_);
    std::fill_n(slab_.reserve(kSlabRows * stride_), kSlabRows * stride_, T{0});
    sums_.reserve(tile_rows() * stride_);
    mean_.reserve(stride_);
    column_.resize(static_cast<size_t>(tile_rows()));
    for (int64_t r = 0; r < tile_rows(); ++r) {
      column_[static_cast<size_t>(r)] = slab_.data() + std::min(r, x.columns - 1);
    }
  }

  // Adds rows [begin, end) and fetches those up to `next_end`.
  void add(int64_t begin, int64_t end, int64_t next_end, int64_t before, Moments to) {
    next_.clear();
    next_.add(x_, end, next_end);
    next_.start();
    const StridedRows<T> rows = read(begin, end);
    moment_kernels<T>().row_mean(rows, mean_.data());
    std::fill_n(sums_.data(), tile_rows() * stride_, T{0});
    for (int64_t row = 0; row < rows.rows; row += kSlabRows) {
      const int64_t count = std::min(kSlabRows, rows.rows - row);
      moment_kernels<T>().center_rows({rows.row(row), rows.stride, count, rows.columns}, mean_.data(),
                                      slab_.data(), stride_);
      multiply(count);
    }
    join(halves_, to, before, mean_.data(), sums_.data(), stride_, end - begin);
  }

 private:
  int64_t tile_rows() const { return round_up(x_.columns, kTileRows); }
  bool in_place() const { return x_.element == kElement<T> && !x_.rows; }

  StridedRows<T> read(int64_t begin, int64_t end) {
    const int64_t rows = end - begin;
    if (in_place()) return {reinterpret_cast<const T*>(x_.row(begin)), x_.stride, rows, x_.columns};
    for (int64_t i = 0; i < rows; ++i) {
      read_columns(x_, x_.row(begin + i), 0, x_.columns, kElement<T>, converted_.data() + i * stride_);
    }
    return {converted_.data(), stride_, rows, x_.columns};
  }

  // sums[r, c] += sum over the slab's rows of x[., r] * x[., c], from r's vector on, or all c.
  void multiply(int64_t rows) {
    const int64_t width = kernels_.width;
    for (int64_t r = 0; r < x_.columns; r += kTileRows) {
      const bool every = r + kTileRows > halves_.whole;
      const int64_t first = every ? 0 : r / width;
      const int64_t last = every ? round_up(x_.columns, width) / width : halves_.whole / width;
      kernels_.dense({column_.data() + r, stride_, kTileRows, rows, last - first,
                      slab_.data() + first * width, stride_, sums_.data() + r * stride_ + first * width,
                      stride_, true, &next_.queue});
    }
  }

  const ProductKernels<T>& kernels_;
  const LinearInput& x_;
  const Halves halves_;
  const int64_t stride_;
  Buffer<T> converted_;  // [kChunkRows, stride]; empty if rows are read in place
  Buffer<T> slab_;       // [kSlabRows, stride] rows minus their mean, and zeros
  Buffer<T> sums_;       // [tile rows, stride]
  Buffer<T> mean_;
  std::vector<const T*> column_;
  BlockPrefetch next_;
};

template <class T>
void covariance_as(const LinearInput& x, int64_t rows, int64_t threads, double* mean, double* covariance) {
  const int64_t columns = x.columns, size = columns * (columns + 1);
  const int64_t width = product_kernels<T>().width;
  const Halves halves{columns, columns / width * width};
  const Parts parts(rows);
  Buffer<double> memory;
  double* const all = memory.reserve(parts.count * size + 1);
  std::fill_n(all, parts.count * size, 0.0);
  const auto moments = [&](int64_t part) { return Moments{all + part * size, all + part * size + columns}; };
  run_tasks(columns == 0 ? 0 : parts.count, threads, [&](int64_t part, int64_t) {
    const int64_t begin = parts.begin(part), end = parts.begin(part + 1);
    Chunk<T> chunk(x, halves);
    for (int64_t row = begin; row < end; row += kChunkRows) {
      const int64_t next = std::min(end, row + kChunkRows);
      chunk.add(row, next, std::min(end, next + kChunkRows), row - begin, moments(part));
    }
  });
  const Moments total = moments(0);
  for (int64_t part = 1; part < parts.count; ++part) {
    const int64_t begin = parts.begin(part), count = parts.begin(part + 1) - begin;
    join(halves, total, begin, moments(part).mean, moments(part).products, columns, count);
  }
  std::copy_n(total.mean, columns, mean);
  const double inverse = 1.0 / static_cast<double>(std::max<int64_t>(rows, 1));
  for (int64_t r = 0; r < columns; ++r) {
    for (int64_t c = r; c < columns; ++c) {
      covariance[r * columns + c] = covariance[c * columns + r] =
          halves.element(total.products, r, c) * inverse;
    }
  }
}

}  // namespace

void column_covariance(const LinearInput& x, int64_t rows, int64_t threads, double* mean,
                       double* covariance) {
  const bool is_double = x.element == Element::kFloat64;
  (is_double ? covariance_as<double> : covariance_as<float>)(x, rows, threads, mean, covariance);
}

namespace {

double dot(const double* a, const double* b, int64_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

double inverse_deviation(double variance, double eps) { return 1.0 / std::sqrt(variance + eps); }

// out [rows, columns] = a [rows, columns] * b [columns, columns].
void multiply(const double* a, const double* b, int64_t rows, int64_t columns, double* out) {
  const ProductKernels<double>& kernels = product_kernels<double>();
  const int64_t stride = block_stride<double>(columns), tiled = round_up(rows, kTileRows);
  Buffer<double> padded, sums;
  padded.reserve(columns * stride + 1);
  sums.reserve(tiled * stride + 1);
  for (int64_t k = 0; k < columns; ++k) {
    double* const to = padded.data() + k * stride;
    std::fill(std::copy_n(b + k * columns, columns, to), to + stride, 0.0);
  }
  std::vector<const double*> values(static_cast<size_t>(tiled));
  for (int64_t r = 0; r < tiled; ++r) values[static_cast<size_t>(r)] = a + std::min(r, rows - 1) * columns;
  PrefetchQueue nothing;
  kernels.dense({values.data(), 1, tiled, columns, round_up(columns, kernels.width) / kernels.width,
                 padded.data(), stride, sums.data(), stride, false, &nothing});
  for (int64_t r = 0; r < rows; ++r) std::copy_n(sums.data() + r * stride, columns, out + r * columns);
}

}  // namespace

void fold_norm(const FoldedNorm& norm, const double* x_mean, const double* x_covariance, double* spread,
               double* mean, double* variance, double* factor) {
  multiply(norm.weight, x_covariance, norm.outputs, norm.columns, spread);
  for (int64_t o = 0; o < norm.outputs; ++o) {
    const double* const row = norm.weight + o * norm.columns;
    mean[o] = dot(row, x_mean, norm.columns);
    const double exact = dot(row, spread + o * norm.columns, norm.columns);
    variance[o] = exact < 0 ? 0 : exact;  // a NaN stays visible
    factor[o] = inverse_deviation(variance[o], norm.eps) * (norm.scale == nullptr ? 1.0 : norm.scale[o]);
  }
}

void fold_norm_grads(const FoldedNorm& norm, const double* variance, const double* spread,
                     const double* d_folded, double* d_weight, double* d_scale) {
  for (int64_t o = 0; o < norm.outputs; ++o) {
    const int64_t at = o * norm.columns;
    const double inverse = inverse_deviation(variance[o], norm.eps);
    const double factor = inverse * (norm.scale == nullptr ? 1.0 : norm.scale[o]);
    d_scale[o] = inverse * dot(d_folded + at, norm.weight + at, norm.columns);
    for (int64_t k = at; k < at + norm.columns; ++k) {
      d_weight[k] = factor * (d_folded[k] - inverse * d_scale[o] * spread[k]);
    }
  }
}

}  // namespace pyg_batchgnn
