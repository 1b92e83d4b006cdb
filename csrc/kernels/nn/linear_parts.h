// The cut of sums over rows into parts, which depends only on the number of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/simd/products.h"

namespace pyg_batchgnn {

constexpr int64_t kGradBlockRows = kWordBits;
constexpr int64_t kPartRows = 512;  // the fewest rows of a part
constexpr int64_t kMostParts = 32;
// Writing, reading and adding the sums of a part costs as much as hundreds of rows. So beyond a few
// parts the rows per part grow.
constexpr int64_t kFewParts = 8, kFurtherPartRows = 4096;

struct Parts {
  int64_t rows, count;

  explicit Parts(int64_t all_rows)
      : rows(all_rows),
        count(std::clamp<int64_t>(all_rows / kPartRows, 1,
                                  std::min(kMostParts, kFewParts + all_rows / kFurtherPartRows))) {}

  int64_t begin(int64_t part) const {
    const int64_t blocks = (rows + kGradBlockRows - 1) / kGradBlockRows;
    return std::min(rows, blocks * part / count * kGradBlockRows);
  }
};

// Adds the sums of all parts, [parts, elements], in order into the first one.
template <class T>
void add_up(const Parts& parts, T* sums, int64_t elements, int64_t threads) {
  constexpr int64_t kPiece = 4096;  // elements that stay in the first cache while parts are added
  if (parts.count == 1) return;
  run_tasks((elements + kPiece - 1) / kPiece, threads, [&](int64_t piece, int64_t) {
    T* const to = sums + piece * kPiece;
    const int64_t count = std::min(kPiece, elements - piece * kPiece);
    for (int64_t part = 1; part < parts.count; ++part) {
      product_kernels<T>().add(to + part * elements, count, to);
    }
  });
}

}  // namespace pyg_batchgnn
