#include "kernels/history/layer.h"

#include <atomic>

#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kGrain = 4096;  // targets, some ten edges each
constexpr int64_t kMissing = -1;

// Returns the row of a source, or kMissing.
int64_t row_of(const HaloLayer& layer, int32_t source) {
  if (source < layer.own_nodes) return source;
  const int32_t place = layer.cached[source - layer.own_nodes];
  return place < 0 ? kMissing : layer.own_rows + place;
}

bool is_input(const HaloLayer& layer, int32_t source) {
  if (source < 0) return false;
  return source < layer.own_nodes ? source < layer.own_rows : source - layer.own_nodes < layer.halo;
}

}  // namespace

bool count_rows_of_halo(const HaloLayer& layer, int64_t* indptr, int64_t threads) {
  std::atomic<bool> fits{true};
  run_ranges(layer.targets, kGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t target = begin; target < end; ++target) {
      int64_t kept = 0;
      for (int64_t e = layer.indptr[target]; e < layer.indptr[target + 1]; ++e) {
        if (!is_input(layer, layer.source[e])) {
          fits = false;
          return;
        }
        kept += row_of(layer, layer.source[e]) != kMissing ? 1 : 0;
      }
      indptr[target + 1] = kept;
    }
  });
  if (!fits) return false;
  indptr[0] = 0;
  for (int64_t target = 0; target < layer.targets; ++target) indptr[target + 1] += indptr[target];
  return true;
}

void fill_rows_of_halo(const HaloLayer& layer, const int64_t* indptr, int32_t* source, int64_t* place,
                       int64_t threads) {
  run_ranges(layer.targets, kGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t target = begin; target < end; ++target) {
      int64_t next = indptr[target];
      for (int64_t e = layer.indptr[target]; e < layer.indptr[target + 1]; ++e) {
        const int64_t row = row_of(layer, layer.source[e]);
        if (row == kMissing) continue;
        source[next] = static_cast<int32_t>(row);
        place[next++] = e;
      }
    }
  });
}

}  // namespace pyg_batchgnn
