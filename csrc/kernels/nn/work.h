// Cuts the rows of a layer into tasks.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Returns the first row whose work begins at or after `work`. The work of a row is the number of
// its edges plus one. Cuts at multiples of the work of a block give tasks of about equal length.
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
