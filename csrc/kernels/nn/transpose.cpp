#include "kernels/nn/transpose.h"

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kGrainEdges = 1 << 17;  // with fewer edges per thread, starting it
                                          // costs more than it saves
constexpr int64_t kMostRanges = 8;        // each range reads all edges, which soon costs more than
                                          // placing its own

// Calls body(edge, source) for the edges whose source is in [low, high).
template <class Body>
void edges_of(Integers indices, int64_t edges, int64_t low, int64_t high, const Body& body) {
  const auto span = static_cast<uint64_t>(high - low);
  for (int64_t e = 0; e < edges; ++e) {
    const int64_t source = indices[e];
    if (static_cast<uint64_t>(source - low) < span) body(e, source);
  }
}

}  // namespace

template <class EdgeId>
void transpose(const int64_t* indptr, Integers indices, int64_t targets, int64_t sources, int64_t* ptr,
               int32_t* target, EdgeId* edge, int64_t threads) {
  const int64_t edges = indptr[targets];
  const int64_t ranges = std::clamp<int64_t>(edges / kGrainEdges, 1, std::min(threads, kMostRanges));
  const auto bound = [&](int64_t range) { return sources * range / ranges; };
  ptr[0] = 0;
  // ptr[s + 1] first counts the edges of s, then is the begin of s, and advances to its end while
  // edges are placed.
  run_tasks(ranges, threads, [&](int64_t range, int64_t) {
    std::fill(ptr + bound(range) + 1, ptr + bound(range + 1) + 1, 0);
    edges_of(indices, edges, bound(range), bound(range + 1), [&](int64_t, int64_t s) { ++ptr[s + 1]; });
  });
  int64_t placed = 0;
  for (int64_t s = 0; s < sources; ++s) {
    const int64_t count = ptr[s + 1];
    ptr[s + 1] = placed;
    placed += count;
  }
  Buffer<int32_t> by_edge;
  int32_t* const target_of = by_edge.reserve(edges + 1);
  for (int64_t i = 0; i < targets; ++i) {
    std::fill(target_of + indptr[i], target_of + indptr[i + 1], static_cast<int32_t>(i));
  }
  run_tasks(ranges, threads, [&](int64_t range, int64_t) {
    edges_of(indices, edges, bound(range), bound(range + 1), [&](int64_t e, int64_t s) {
      const int64_t place = ptr[s + 1]++;
      target[place] = target_of[e];
      edge[place] = static_cast<EdgeId>(e);
    });
  });
}

template void transpose(const int64_t*, Integers, int64_t, int64_t, int64_t*, int32_t*, int32_t*, int64_t);
template void transpose(const int64_t*, Integers, int64_t, int64_t, int64_t*, int32_t*, int64_t*, int64_t);

}  // namespace pyg_batchgnn
