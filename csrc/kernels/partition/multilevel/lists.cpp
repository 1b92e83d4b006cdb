#include "kernels/partition/multilevel/lists.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/partition/multilevel/saturated.h"

namespace pyg_batchgnn {
namespace {

// Sorts one list together with its weights.
template <class Id>
void sort_weighted(Id* ids, int32_t* weights, int64_t count, std::vector<std::pair<Id, int32_t>>& pairs) {
  pairs.resize(static_cast<size_t>(count));
  for (int64_t e = 0; e < count; ++e) pairs[e] = {ids[e], weights[e]};
  std::sort(pairs.begin(), pairs.end());
  for (int64_t e = 0; e < count; ++e) std::tie(ids[e], weights[e]) = pairs[e];
}

// Calls found(id, sum of weights) for each distinct neighbour of a sorted list, apart from the node
// itself.
template <class Id, class Found>
void each_distinct(int64_t self, const Id* ids, const int32_t* weights, int64_t begin, int64_t end,
                   const Found& found) {
  for (int64_t e = begin; e < end;) {
    int64_t sum = 0;
    const Id id = ids[e];
    for (; e < end && ids[e] == id; ++e) sum += weights == nullptr ? 1 : weights[e];
    if (id != self) found(id, saturated(sum));
  }
}

}  // namespace

template <class Word, class Id>
bool append_neighbours(const Word* rows, int64_t count, int64_t columns, int64_t first, int64_t lists,
                       int64_t places, int64_t* cursor, Id* ids, int32_t* weights) {
  constexpr int64_t kAhead = 16;  // rows between the prefetch of a place and the write
  for (int64_t r = 0; r < count; ++r) {
    if (r + kAhead < count) {
      const int64_t soon = static_cast<int64_t>(rows[(r + kAhead) * columns]) - first;
      if (soon < 0 || soon >= lists) return false;
      __builtin_prefetch(&ids[cursor[soon]], 1);
    }
    const int64_t list = static_cast<int64_t>(rows[r * columns]) - first;
    if (list < 0 || list >= lists || cursor[list] >= places) return false;
    const int64_t place = cursor[list]++;
    ids[place] = static_cast<Id>(rows[r * columns + 1]);
    if (weights != nullptr) weights[place] = static_cast<int32_t>(rows[r * columns + 2]);
  }
  return true;
}

template <class Id>
Merged sort_lists(int64_t first, int64_t lists, const int64_t* indptr, Id* ids, int32_t* weights,
                  int64_t* merged) {
  std::vector<std::pair<Id, int32_t>> pairs;
  int32_t low = std::numeric_limits<int32_t>::max(), high = 0;
  merged[0] = 0;
  for (int64_t list = 0; list < lists; ++list) {
    const int64_t begin = indptr[list], end = indptr[list + 1];
    if (weights == nullptr)
      std::sort(ids + begin, ids + end);
    else
      sort_weighted(ids + begin, weights + begin, end - begin, pairs);
    int64_t distinct = 0;
    each_distinct(first + list, ids, weights, begin, end, [&](Id, int32_t sum) {
      ++distinct;
      low = std::min(low, sum);
      high = std::max(high, sum);
    });
    merged[list + 1] = merged[list] + distinct;
  }
  return {merged[lists], low == high ? low : 0};
}

template <class Id>
void merge_lists(int64_t first, int64_t lists, const int64_t* indptr, const Id* ids, const int32_t* weights,
                 const int64_t* merged, Id* merged_ids, int32_t* merged_weights) {
  for (int64_t list = 0; list < lists; ++list) {
    int64_t to = merged[list];
    each_distinct(first + list, ids, weights, indptr[list], indptr[list + 1], [&](Id id, int32_t sum) {
      merged_ids[to] = id;
      if (merged_weights != nullptr) merged_weights[to] = sum;
      ++to;
    });
  }
}

#define PYG_BATCHGNN_LISTS(Id)                                                                           \
  template Merged sort_lists(int64_t, int64_t, const int64_t*, Id*, int32_t*, int64_t*);                 \
  template void merge_lists(int64_t, int64_t, const int64_t*, const Id*, const int32_t*, const int64_t*, \
                            Id*, int32_t*);                                                              \
  template bool append_neighbours(const int32_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t*, \
                                  Id*, int32_t*);                                                        \
  template bool append_neighbours(const int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t*, \
                                  Id*, int32_t*);
PYG_BATCHGNN_LISTS(int32_t)
PYG_BATCHGNN_LISTS(int64_t)

}  // namespace pyg_batchgnn
