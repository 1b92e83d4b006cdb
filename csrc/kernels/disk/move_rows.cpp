#include "kernels/disk/move_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/prefetch.h"

namespace pyg_batchgnn {

void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads) {
  constexpr int64_t kAhead = 16, kGrainBytes = 1 << 20;
  run_ranges(count, kGrainBytes / std::max<int64_t>(row_bytes, 64), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        prefetch_line(from + from_row[i + kAhead] * row_bytes);
        prefetch_line(to + to_row[i + kAhead] * row_bytes);
      }
      std::memcpy(to + to_row[i] * row_bytes, from + from_row[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

}  // namespace pyg_batchgnn
