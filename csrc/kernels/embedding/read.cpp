#include "kernels/embedding/read.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBytesAhead = 4096;     // bytes of rows between prefetch and use
constexpr int64_t kPrefetched = 128;      // a prefetch brings its line and the neighbouring one
constexpr int64_t kGrainBytes = 1 << 20;  // fewer bytes do not pay for a thread

}  // namespace

void gather_either(const TwoTables& tables, const int64_t* source, int64_t count, char* out,
                   int64_t threads) {
  const int64_t bytes = tables.row_bytes;
  const int64_t ahead = std::clamp<int64_t>(kBytesAhead / std::max<int64_t>(bytes, 1), 2, 64);
  run_ranges(count, kGrainBytes / std::max<int64_t>(bytes, 8), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + ahead < end) {
        const char* next = tables.at(source[i + ahead]);
        for (int64_t byte = 0; byte < bytes; byte += kPrefetched) __builtin_prefetch(next + byte);
      }
      std::memcpy(out + i * bytes, tables.at(source[i]), static_cast<size_t>(bytes));
    }
  });
}

}  // namespace pyg_batchgnn
