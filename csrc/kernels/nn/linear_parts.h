// Sums over rows are taken in parts that depend on the number of rows alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/simd/products.h"

namespace pyg_batchgnn {

constexpr int64_t kGradBlockRows = kWordBits;
constexpr int64_t kPartRows = 512;  // fewest rows that are worth sums of their own
constexpr int64_t kMostParts = 32;

struct Parts {
  int64_t rows, count;

  explicit Parts(int64_t all_rows)
      : rows(all_rows), count(std::clamp<int64_t>(all_rows / kPartRows, 1, kMostParts)) {}

  int64_t begin(int64_t part) const {
    const int64_t blocks = (rows + kGradBlockRows - 1) / kGradBlockRows;
    return std::min(rows, blocks * part / count * kGradBlockRows);
  }
};

}  // namespace pyg_batchgnn
