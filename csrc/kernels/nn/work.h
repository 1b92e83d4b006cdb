// The cut of a layer's rows into tasks.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The first row whose work, counted as its edges and itself, begins at or behind `work`. Rows cut at
// multiples of a block's work make tasks of about equal length, whatever the threads.
inline int64_t row_at_work(const int64_t* indptr, int64_t rows, int64_t work) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (indptr[middle] - indptr[0] + middle < work) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

inline int64_t blocks_of_work(const int64_t* indptr, int64_t rows, int64_t block) {
  return (indptr[rows] - indptr[0] + rows + block - 1) / block;
}

}  // namespace pyg_batchgnn
