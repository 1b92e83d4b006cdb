#include "kernels/partition/group.h"

#include <algorithm>

#include "kernels/allocation.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kFewGroups = 16;  // up to here comparisons cost less than the branches of a
                                    // search

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
  Buffer<int64_t> next_buffer;
  int64_t* const next = next_buffer.reserve(groups);
  int64_t begin = 0;
  for (int64_t g = 0; g < groups; ++g) {
    next[g] = begin;
    begin += counts[g];
  }
  for (int64_t i = 0; i < count; ++i) order[next[group[i]]++] = static_cast<int32_t>(i);
  return false;
}

template void find_groups(const int32_t*, int64_t, const int64_t*, int64_t, int32_t*);
template void find_groups(const int64_t*, int64_t, const int64_t*, int64_t, int32_t*);
template bool group_rows(const int32_t*, int64_t, int64_t, int32_t*, int64_t*);
template bool group_rows(const int64_t*, int64_t, int64_t, int32_t*, int64_t*);

}  // namespace pyg_batchgnn
