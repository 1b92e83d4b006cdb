#include "kernels/csc.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>

#include "kernels/allocation.h"
#include "kernels/counting_sort.h"
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
  std::fill_n(indptr, num_nodes + 1, 0);
  count_groups(0, count, [&](int64_t e) { return destinations[e]; }, indptr);
  scan(indptr, num_nodes + 1);
}

template <class In, class Index, class EdgeId>
void fill_csc(const In* sources, const In* destinations, int64_t count, int64_t num_nodes,
              const int64_t* indptr, Index* indices, EdgeId* edge_ids) {
  constexpr int64_t kAhead = 32;  // written out: by place_groups it takes a quarter longer
  if (edge_ids == nullptr) {      // already by destination
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

namespace {

constexpr int64_t kGrainEdges = 1 << 17;  // edges of a thread that pay for its start
constexpr int64_t kBucketsPerThread = 4;  // some sources have far more edges than others

// The target of edges that are asked for in ascending order.
class TargetOf {
 public:
  TargetOf(const int64_t* indptr, int64_t targets, int64_t first_edge)
      : indptr_(indptr), target_(std::upper_bound(indptr, indptr + targets, first_edge) - indptr - 1) {}

  int32_t operator()(int64_t edge) {
    while (indptr_[target_ + 1] <= edge) ++target_;
    return static_cast<int32_t>(target_);
  }

 private:
  const int64_t* indptr_;
  int64_t target_;
};

// One edge on its way to the list of its source.
template <class EdgeId>
struct MovedEdge {
  uint32_t source;  // in its bucket
  int32_t target;
  EdgeId edge;
};

// The lists by source, while they are filled.
template <class EdgeId>
struct BySource {
  int64_t sources;
  int64_t* ptr;
  int32_t* target;
  EdgeId* edge;

  void touch(int64_t slot) const {
    prefetch_to_write(&target[slot]);
    prefetch_to_write(&edge[slot]);
  }
  void put(int64_t slot, int32_t of, int64_t e) const {
    target[slot] = of;
    edge[slot] = static_cast<EdgeId>(e);
  }
};

template <class Index, class EdgeId>
void transpose_at_once(const int64_t* indptr, const Index* indices, int64_t targets,
                       const BySource<EdgeId>& out) {
  TargetOf target(indptr, targets, 0);
  counting_sort(
      0, indptr[targets], [&](int64_t e) { return indices[e]; }, out.sources, 0, out.ptr + 1,
      [&](int64_t slot) { out.touch(slot); }, [&](int64_t e, int64_t slot) { out.put(slot, target(e), e); });
}

// Threads first move blocks of edges into buckets of neighbouring sources, then sort the buckets.
// What they write to at random lies in their caches.
template <class Index, class EdgeId>
void transpose_by_buckets(const int64_t* indptr, const Index* indices, int64_t targets, int64_t threads,
                          int64_t blocks, const BySource<EdgeId>& out) {
  const int64_t edges = indptr[targets];
  const int shift = std::bit_width(static_cast<uint64_t>(out.sources / (kBucketsPerThread * blocks)));
  const int64_t buckets = ((out.sources - 1) >> shift) + 1;
  const auto bucket = [&](int64_t e) { return static_cast<int64_t>(indices[e]) >> shift; };
  const auto begin = [&](int64_t block) { return edges * block / blocks; };
  Buffer<int64_t> next_buffer, first_buffer;
  Buffer<MovedEdge<EdgeId>> moved_buffer;
  int64_t* const next = next_buffer.reserve(blocks * buckets);
  int64_t* const first = first_buffer.reserve(buckets + 1);
  MovedEdge<EdgeId>* const moved = moved_buffer.reserve(edges + 1);
  std::fill_n(next, blocks * buckets, 0);
  run_tasks(blocks, threads, [&](int64_t block, int64_t) {
    count_groups(begin(block), begin(block + 1), bucket, next + block * buckets);
  });
  scan_blocks(next, blocks, buckets, first);
  run_tasks(blocks, threads, [&](int64_t block, int64_t) {
    TargetOf target(indptr, targets, begin(block));
    int64_t* const own = next + block * buckets;
    for (int64_t e = begin(block); e < begin(block + 1); ++e) {
      const int64_t to = bucket(e);
      moved[own[to]++] = {static_cast<uint32_t>(static_cast<int64_t>(indices[e]) - (to << shift)), target(e),
                          static_cast<EdgeId>(e)};
    }
  });
  run_tasks(buckets, threads, [&](int64_t at, int64_t) {
    const int64_t low = at << shift, high = std::min(out.sources, (at + 1) << shift);
    counting_sort(
        first[at], first[at + 1], [&](int64_t m) { return moved[m].source; }, high - low, first[at],
        out.ptr + 1 + low, [&](int64_t slot) { out.touch(slot); },
        [&](int64_t m, int64_t slot) { out.put(slot, moved[m].target, moved[m].edge); });
  });
}

}  // namespace

template <class EdgeId>
void transpose(const int64_t* indptr, Integers indices, int64_t targets, int64_t sources, int64_t* ptr,
               int32_t* target, EdgeId* edge, int64_t threads) {
  const BySource<EdgeId> out{sources, ptr, target, edge};
  const int64_t blocks = std::clamp<int64_t>(indptr[targets] / kGrainEdges, 1, std::max<int64_t>(1, threads));
  ptr[0] = 0;
  with_integers(indices, [&](const auto* index) {
    if (blocks == 1) return transpose_at_once(indptr, index, targets, out);
    transpose_by_buckets(indptr, index, targets, threads, blocks, out);
  });
}

template void transpose(const int64_t*, Integers, int64_t, int64_t, int64_t*, int32_t*, int32_t*, int64_t);
template void transpose(const int64_t*, Integers, int64_t, int64_t, int64_t*, int32_t*, int64_t*, int64_t);

}  // namespace pyg_batchgnn
