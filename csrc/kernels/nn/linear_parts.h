// Sums over rows are taken in parts that depend on the number of rows alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/simd/products.h"

namespace pyg_batchgnn {

constexpr int64_t kGradBlockRows = kWordBits;
constexpr int64_t kPartRows = 512;  // fewest rows that are worth sums of their own
constexpr int64_t kMostParts = 32;
// Sums of a part are written, read and added up, which costs as much as hundreds of rows: beyond a few parts,
// there is another one for so many further rows only.
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

// Adds the sums of all parts, [parts, elements], in their order into the first's.
template <class T>
void add_up(const Parts& parts, T* sums, int64_t elements, int64_t threads) {
  constexpr int64_t kPiece = 4096;  // stays in the first cache while the parts come by
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
