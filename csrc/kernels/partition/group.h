// Rows in order of their owners.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The group of each value: group g holds the values in [bounds[g], bounds[g + 1]). What lies below the first
// bound is of the first group, what lies above the last of the last.
template <class Value>
void find_groups(const Value* values, int64_t count, const int64_t* bounds, int64_t groups, int32_t* group);

// order = the rows by group, stably; counts[g] = rows of group g. Returns whether they were in that order
// already, and then leaves `order` alone.
template <class Group>
bool group_rows(const Group* group, int64_t count, int64_t groups, int32_t* order, int64_t* counts);

}  // namespace pyg_batchgnn
