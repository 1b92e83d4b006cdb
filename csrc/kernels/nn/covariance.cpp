#include "kernels/nn/covariance.h"

#include <algorithm>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/linear_parts.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunkRows = 512;  // summed in T about their own mean; chunks are joined in double
constexpr int64_t kSlabRows = 64;    // of some hundred columns: they stay in the first cache

// Mean of some rows and the upper triangle [columns, columns] of the sums of products of deviations from it.
struct Moments {
  double* mean;
  double* products;
};

// The rows of `b`, nb of them, join the na rows of `a` (Chan, Golub and LeVeque 1979). Rows of b's products
// lie `stride` apart.
template <class T>
void join(Moments a, int64_t na, const double* b_mean, const T* b_products, int64_t stride, int64_t nb,
          int64_t columns) {
  const double share = static_cast<double>(nb) / static_cast<double>(na + nb);
  const double between = share * static_cast<double>(na);
  Buffer<double> gaps;
  double* const gap = gaps.reserve(columns + 1);
  for (int64_t c = 0; c < columns; ++c) gap[c] = b_mean[c] - a.mean[c];
  for (int64_t r = 0; r < columns; ++r) {
    double* const to = a.products + r * columns;
    const T* const from = b_products + r * stride;
    const double by = gap[r] * between;
    for (int64_t c = r; c < columns; ++c) to[c] += static_cast<double>(from[c]) + by * gap[c];
  }
  for (int64_t c = 0; c < columns; ++c) a.mean[c] += gap[c] * share;
}

template <class T>
class Chunk {
 public:
  explicit Chunk(const LinearInput& x)
      : kernels_(product_kernels<T>()), x_(x), columns_(x.columns), stride_(block_stride<T>(x.columns)) {
    values_.reserve(kChunkRows * stride_);
    sums_.reserve(tile_rows() * stride_);
    center_.reserve(stride_);
    mean_.reserve(columns_ + 1);
    column_.resize(static_cast<size_t>(tile_rows()));
  }

  void add(int64_t begin, int64_t end, int64_t before, Moments to) {
    read(begin, end);
    std::fill_n(sums_.data(), tile_rows() * stride_, T{0});
    for (int64_t row = 0; row < end - begin; row += kSlabRows) {
      multiply(row, std::min(kSlabRows, end - begin - row));
    }
    join(to, before, mean_.data(), sums_.data(), stride_, end - begin, columns_);
  }

 private:
  int64_t tile_rows() const { return round_up(columns_, kTileRows); }
  T* row(int64_t i) const { return values_.data() + i * stride_; }

  // The rows less their mean.
  void read(int64_t begin, int64_t end) {
    T* const center = center_.data();
    std::fill_n(center, stride_, T{0});
    for (int64_t i = begin; i < end; ++i) {
      T* const to = row(i - begin);
      kernels_.read(x_.row(i), x_.element, columns_, to);
      std::fill(to + columns_, to + stride_, T{0});
      kernels_.add(to, columns_, center);
    }
    for (int64_t c = 0; c < columns_; ++c) {
      center[c] /= static_cast<T>(-(end - begin));
      mean_.data()[c] = -static_cast<double>(center[c]);
    }
    for (int64_t i = 0; i < end - begin; ++i) kernels_.add(center, columns_, row(i));
  }

  // sums[r, c] += sum over the rows of x[., r] * x[., c], from the vector on that holds column r.
  void multiply(int64_t first, int64_t rows) {
    for (int64_t r = 0; r < tile_rows(); ++r) {
      column_[static_cast<size_t>(r)] = row(first) + std::min(r, columns_ - 1);
    }
    for (int64_t r = 0; r < columns_; r += kTileRows) {
      const int64_t vector = r / kernels_.width, at = vector * kernels_.width;
      kernels_.dense({column_.data() + r, stride_, kTileRows, rows,
                      round_up(columns_, kernels_.width) / kernels_.width - vector, row(first) + at, stride_,
                      sums_.data() + r * stride_ + at, stride_, true, &nothing_});
    }
  }

  const ProductKernels<T>& kernels_;
  const LinearInput& x_;
  const int64_t columns_, stride_;
  Buffer<T> values_;  // [kChunkRows, stride]
  Buffer<T> sums_;    // [tile rows, stride]
  Buffer<T> center_;  // what centres a row
  Buffer<double> mean_;
  std::vector<const T*> column_;
  Ahead nothing_;
};

}  // namespace

template <class T>
void column_covariance(const LinearInput& x, int64_t rows, int64_t threads, double* mean,
                       double* covariance) {
  const int64_t columns = x.columns, size = columns * (columns + 1);
  const Parts parts(rows);
  Buffer<double> memory;
  double* const all = memory.reserve(parts.count * size + 1);
  std::fill_n(all, parts.count * size, 0.0);
  const auto moments = [&](int64_t part) { return Moments{all + part * size, all + part * size + columns}; };
  run_tasks(columns == 0 ? 0 : parts.count, threads, [&](int64_t part, int64_t) {
    const int64_t begin = parts.begin(part), end = parts.begin(part + 1);
    Chunk<T> chunk(x);
    for (int64_t row = begin; row < end; row += kChunkRows) {
      chunk.add(row, std::min(end, row + kChunkRows), row - begin, moments(part));
    }
  });
  const Moments total = moments(0);
  for (int64_t part = 1; part < parts.count; ++part) {
    const int64_t begin = parts.begin(part), count = parts.begin(part + 1) - begin;
    join(total, begin, moments(part).mean, moments(part).products, columns, count, columns);
  }
  std::copy_n(total.mean, columns, mean);
  const double inverse = 1.0 / static_cast<double>(std::max<int64_t>(rows, 1));
  for (int64_t r = 0; r < columns; ++r) {
    for (int64_t c = r; c < columns; ++c) {
      covariance[r * columns + c] = covariance[c * columns + r] = total.products[r * columns + c] * inverse;
    }
  }
}

template void column_covariance<float>(const LinearInput&, int64_t, int64_t, double*, double*);
template void column_covariance<double>(const LinearInput&, int64_t, int64_t, double*, double*);

}  // namespace pyg_batchgnn
