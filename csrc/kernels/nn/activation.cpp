#include "kernels/nn/activation.h"

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/parallel.h"
#include "kernels/simd/activation.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kTaskElements = 1 << 17;  // enough work to hide the cost of a task

// Calls body(row, scratch) for every row.
template <class Body>
void for_rows(MatrixSize size, int64_t threads, const Body& body) {
  const int64_t each = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(size.columns, 1));
  run_tasks((size.rows + each - 1) / each, threads, [&](int64_t task, int64_t) {
    Buffer<uint16_t> draws;
    Buffer<uint8_t> pass;
    const int64_t columns = padded_columns(size.columns);
    const RowScratch scratch{draws.reserve(columns), pass.reserve(columns)};
    std::fill_n(scratch.pass, columns, uint8_t{0});
    for (int64_t row = task * each; row < std::min(size.rows, (task + 1) * each); ++row) body(row, scratch);
  });
}

}  // namespace

template <class T>
void activate(T* x, MatrixSize size, const Activation& activation, int64_t threads, uint8_t* mask) {
  const Dropout* const dropout = activation.dropout;
  const auto scale = static_cast<Wide<T>>(dropout == nullptr ? 1.0 : dropout->scale());
  for_rows(size, threads, [&](int64_t row, const RowScratch& scratch) {
    T* const line = x + row * size.columns;
    if (dropout != nullptr) {
      const int64_t node = activation.node == nullptr ? row : activation.node[row];
      dropout_draws(dropout_row_key(dropout->key, node), size.columns, scratch.draws);
      dropout_passes(scratch.draws, dropout->kept_levels, size.columns, scratch.pass);
    } else {
      std::fill_n(scratch.pass, size.columns, uint8_t{1});
    }
    if (activation.relu) relu_passes(line, size.columns, scratch.pass);
    select_scaled(line, scratch.pass, scale, size.columns, line);
    pack_bits(scratch.pass, size.columns, mask + row * size.mask_bytes());
  });
}

template <class T>
void mask_gradient(const T* grad, const uint8_t* mask, MatrixSize size, double scale, int64_t threads,
                   T* out) {
  for_rows(size, threads, [&](int64_t row, const RowScratch& scratch) {
    unpack_bits(mask + row * size.mask_bytes(), size.columns, scratch.pass);
    select_scaled(grad + row * size.columns, scratch.pass, static_cast<Wide<T>>(scale), size.columns,
                  out + row * size.columns);
  });
}

#define PYG_BATCHGNN_INSTANTIATE(T)                                             \
  template void activate(T*, MatrixSize, const Activation&, int64_t, uint8_t*); \
  template void mask_gradient(const T*, const uint8_t*, MatrixSize, double, int64_t, T*);

PYG_BATCHGNN_INSTANTIATE(float)
PYG_BATCHGNN_INSTANTIATE(double)
PYG_BATCHGNN_INSTANTIATE(Bfloat16)

}  // namespace pyg_batchgnn
