#include "kernels/partition/place.h"

namespace pyg_batchgnn {

template <class Value>
bool count_values(const Value* values, int64_t count, int64_t first, int64_t nodes, int64_t* counts) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = static_cast<int64_t>(values[i]) - first;
    if (at < 0 || at >= nodes) return false;
    ++counts[at];
  }
  return true;
}

template <class Word, class Index, class EdgeId>
bool place_edges(const Word* edges, int64_t count, const GrowingLists<Index, EdgeId>& lists) {
  constexpr int64_t kAhead = 16;  // edges between the prefetch of a list's end and the write
  for (int64_t e = 0; e < count; ++e) {
    if (e + 2 * kAhead < count)
      __builtin_prefetch(&lists.cursor[edges[3 * (e + 2 * kAhead)] - lists.first], 1);
    if (e + kAhead < count) {
      const int64_t soon = static_cast<int64_t>(edges[3 * (e + kAhead)]) - lists.first;
      if (soon < 0 || soon >= lists.nodes) return false;
      __builtin_prefetch(&lists.indices[lists.cursor[soon]], 1);
      __builtin_prefetch(&lists.edge_ids[lists.cursor[soon]], 1);
    }
    const int64_t at = static_cast<int64_t>(edges[3 * e]) - lists.first;
    if (at < 0 || at >= lists.nodes || lists.cursor[at] >= lists.edges) return false;
    const int64_t slot = lists.cursor[at]++;
    lists.indices[slot] = static_cast<Index>(edges[3 * e + 1]);
    lists.edge_ids[slot] = static_cast<EdgeId>(edges[3 * e + 2]);
  }
  return true;
}

#define PYG_BATCHGNN_PLACE(Word, Index, EdgeId) \
  template bool place_edges(const Word*, int64_t, const GrowingLists<Index, EdgeId>&);
template bool count_values(const int32_t*, int64_t, int64_t, int64_t, int64_t*);
template bool count_values(const int64_t*, int64_t, int64_t, int64_t, int64_t*);
PYG_BATCHGNN_PLACE(int32_t, int32_t, int32_t)
PYG_BATCHGNN_PLACE(int64_t, int32_t, int32_t)
PYG_BATCHGNN_PLACE(int64_t, int32_t, int64_t)
PYG_BATCHGNN_PLACE(int64_t, int64_t, int32_t)
PYG_BATCHGNN_PLACE(int64_t, int64_t, int64_t)

}  // namespace pyg_batchgnn
