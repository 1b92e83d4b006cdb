// Sorts rows by owner.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Finds the group of each value. Group g holds the values in [bounds[g], bounds[g + 1]). Smaller
// values belong to the first group, larger ones to the last.
template <class Value>
void find_groups(const Value* values, int64_t count, const int64_t* bounds, int64_t groups, int32_t* group);

// Sets order to the rows by group, in a stable order, and counts[g] to the rows of group g. Returns
// true if the rows were in that order; then `order` is not written.
template <class Group>
bool group_rows(const Group* group, int64_t count, int64_t groups, int32_t* order, int64_t* counts);

}  // namespace pyg_batchgnn
