#include "kernels/csc.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "kernels/allocation.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {

template <class T>
Extent extent(const T* values, int64_t count, int64_t threads) {
  if (count == 0) return {0, -1};
  Extent all{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  std::mutex lock;
  run_ranges(count, 1 << 20, threads, [&](int64_t begin, int64_t end) {
    const Extent part = scan_extent(values + begin, end - begin);
    const std::lock_guard<std::mutex> guard(lock);
    all = {std::min(all.low, part.low), std::max(all.high, part.high)};
  });
  return all;
}

template <class T>
void count_destinations(const T* destinations, int64_t count, int64_t num_nodes, int64_t* indptr) {
  std::fill(indptr, indptr + num_nodes + 1, 0);
  for (int64_t e = 0; e < count; ++e) ++indptr[destinations[e] + 1];
  for (int64_t v = 0; v < num_nodes; ++v) indptr[v + 1] += indptr[v];
}

template <class In, class Index, class EdgeId>
void fill_csc(const In* sources, const In* destinations, int64_t count, int64_t num_nodes,
              const int64_t* indptr, Index* indices, EdgeId* edge_ids) {
  constexpr int64_t kAhead = 32;
  if (edge_ids == nullptr) {  // already by destination
    std::transform(sources, sources + count, indices, [](In source) { return static_cast<Index>(source); });
    return;
  }
  Buffer<int64_t> next_buffer;
  int64_t* next = next_buffer.reserve(num_nodes + 1);
  std::copy(indptr, indptr + num_nodes + 1, next);
  for (int64_t e = 0; e < count; ++e) {
    if (e + 2 * kAhead < count) __builtin_prefetch(&next[destinations[e + 2 * kAhead]], 1);
    if (e + kAhead < count) {
      const int64_t soon = next[destinations[e + kAhead]];
      __builtin_prefetch(&indices[soon], 1);
      __builtin_prefetch(&edge_ids[soon], 1);
    }
    const int64_t slot = next[destinations[e]]++;
    indices[slot] = static_cast<Index>(sources[e]);
    edge_ids[slot] = static_cast<EdgeId>(e);
  }
}

#define PYG_BATCHGNN_FILL(In, Index)                                                                \
  template void fill_csc(const In*, const In*, int64_t, int64_t, const int64_t*, Index*, int32_t*); \
  template void fill_csc(const In*, const In*, int64_t, int64_t, const int64_t*, Index*, int64_t*);
#define PYG_BATCHGNN_SCAN(In)                                              \
  template Extent extent(const In*, int64_t, int64_t);                     \
  template void count_destinations(const In*, int64_t, int64_t, int64_t*); \
  PYG_BATCHGNN_FILL(In, int32_t) PYG_BATCHGNN_FILL(In, int64_t)

PYG_BATCHGNN_SCAN(int32_t)
PYG_BATCHGNN_SCAN(int64_t)

void sum_lists(const int64_t* indptr, int64_t lists, const double* values, double* sums) {
  for (int64_t list = 0; list < lists; ++list) {
    double sum = 0;
    for (int64_t e = indptr[list]; e < indptr[list + 1]; ++e) sums[e] = sum += values[e];
  }
}

}  // namespace pyg_batchgnn
