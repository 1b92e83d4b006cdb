#include "kernels/partition/lists.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/counting_sort.h"
#include "kernels/node_set.h"
#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kFewGroups = 16;  // up to here comparisons cost less than a search

}  // namespace

template <class Value>
void find_groups(const Value* values, int64_t count, const int64_t* bounds, int64_t groups, int32_t* group) {
  if (groups > kFewGroups) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t* const after =
          std::upper_bound(bounds + 1, bounds + groups, static_cast<int64_t>(values[i]));
      group[i] = static_cast<int32_t>(after - (bounds + 1));
    }
    return;
  }
  std::fill(group, group + count, 0);
  for (int64_t g = 1; g < groups; ++g) {
    const int64_t bound = bounds[g];
    for (int64_t i = 0; i < count; ++i) group[i] += static_cast<int64_t>(values[i]) >= bound ? 1 : 0;
  }
}

template <class Group>
bool group_rows(const Group* group, int64_t count, int64_t groups, int32_t* order, int64_t* counts) {
  std::fill(counts, counts + groups, 0);
  bool ascending = true;
  for (int64_t i = 0; i < count; ++i) {
    ++counts[group[i]];
    ascending &= i == 0 || group[i - 1] <= group[i];
  }
  if (ascending) return true;
  Buffer<int64_t> next;
  std::copy_n(counts, groups, next.reserve(groups + 1));
  scan(next.data(), groups);
  place_groups(
      0, count, [&](int64_t i) { return group[i]; }, next.data(),
      [&](int64_t i, int64_t slot) { order[slot] = static_cast<int32_t>(i); });
  return false;
}

template void find_groups(const int32_t*, int64_t, const int64_t*, int64_t, int32_t*);
template void find_groups(const int64_t*, int64_t, const int64_t*, int64_t, int32_t*);
template bool group_rows(const int32_t*, int64_t, int64_t, int32_t*, int64_t*);
template bool group_rows(const int64_t*, int64_t, int64_t, int32_t*, int64_t*);

template <class Value>
bool count_values(const Value* values, int64_t count, int64_t first, int64_t nodes, int64_t* counts) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = static_cast<int64_t>(values[i]) - first;
    if (at < 0 || at >= nodes) return false;
    ++counts[at];
  }
  return true;
}

template <class Word, class Id, class Value>
bool append_edges(const Word* rows, int64_t count, int64_t columns, const GrowingLists<Id, Value>& lists) {
  constexpr int64_t kAhead = 16;  // edges between the prefetch of a list's end and the write
  const auto list_of = [&](int64_t e) { return static_cast<int64_t>(rows[e * columns]) - lists.first; };
  for (int64_t e = 0; e < count; ++e) {
    if (e + 2 * kAhead < count) __builtin_prefetch(&lists.cursor[list_of(e + 2 * kAhead)], 1);
    if (e + kAhead < count) {
      const int64_t soon = list_of(e + kAhead);
      if (soon < 0 || soon >= lists.nodes) return false;
      __builtin_prefetch(&lists.ids[lists.cursor[soon]], 1);
      if (lists.values != nullptr) __builtin_prefetch(&lists.values[lists.cursor[soon]], 1);
    }
    const int64_t list = list_of(e);
    if (list < 0 || list >= lists.nodes || lists.cursor[list] >= lists.edges) return false;
    const int64_t slot = lists.cursor[list]++;
    lists.ids[slot] = static_cast<Id>(rows[e * columns + 1]);
    if (lists.values != nullptr) lists.values[slot] = static_cast<Value>(rows[e * columns + 2]);
  }
  return true;
}

#define PYG_BATCHGNN_APPEND(Word, Id, Value) \
  template bool append_edges(const Word*, int64_t, int64_t, const GrowingLists<Id, Value>&);
PYG_BATCHGNN_APPEND(int32_t, int32_t, int32_t)
PYG_BATCHGNN_APPEND(int32_t, int64_t, int32_t)
PYG_BATCHGNN_APPEND(int64_t, int32_t, int32_t)
PYG_BATCHGNN_APPEND(int64_t, int32_t, int64_t)
PYG_BATCHGNN_APPEND(int64_t, int64_t, int32_t)
PYG_BATCHGNN_APPEND(int64_t, int64_t, int64_t)

template bool count_values(const int32_t*, int64_t, int64_t, int64_t, int64_t*);
template bool count_values(const int64_t*, int64_t, int64_t, int64_t, int64_t*);

namespace {

// Sorts one list together with its weights.
template <class Id>
void sort_weighted(Id* ids, int32_t* weights, int64_t count, std::vector<std::pair<Id, int32_t>>& pairs) {
  pairs.resize(static_cast<size_t>(count));
  for (int64_t e = 0; e < count; ++e) pairs[e] = {ids[e], weights[e]};
  std::sort(pairs.begin(), pairs.end());
  for (int64_t e = 0; e < count; ++e) std::tie(ids[e], weights[e]) = pairs[e];
}

// Calls found(id, sum of weights) for each distinct neighbour of a sorted list but the node itself.
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
                            Id*, int32_t*);
PYG_BATCHGNN_LISTS(int32_t)
PYG_BATCHGNN_LISTS(int64_t)

template <class Id>
std::vector<Id> number_ghosts(const Id* ids, int64_t count, int64_t first, int64_t nodes, int64_t total,
                              int32_t* local) {
  const auto is_own = [&](int64_t id) { return id >= first && id < first + nodes; };
  NodeSet set;
  set.begin(total);
  for (int64_t e = 0; e < count; ++e) {
    if (!is_own(ids[e])) set.add(ids[e]);
  }
  const auto found = static_cast<size_t>(set.size());
  std::vector<Id> ghosts(found + 2);
  set.list(ghosts.data());
  ghosts.resize(found);
  for (int64_t e = 0; e < count; ++e) {
    const int64_t id = ids[e];
    local[e] = static_cast<int32_t>(is_own(id) ? id - first : nodes + set.rank(id));
  }
  return ghosts;
}

template std::vector<int32_t> number_ghosts(const int32_t*, int64_t, int64_t, int64_t, int64_t, int32_t*);
template std::vector<int64_t> number_ghosts(const int64_t*, int64_t, int64_t, int64_t, int64_t, int32_t*);

}  // namespace pyg_batchgnn
