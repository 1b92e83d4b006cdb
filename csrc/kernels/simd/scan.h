// Passes over whole arrays.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The smallest and the largest entry; {0, -1} without entries.
struct Extent {
  int64_t low, high;
};

Extent scan_extent(const int32_t* values, int64_t count);
Extent scan_extent(const int64_t* values, int64_t count);

// Returns whether no entry is smaller than the one before it.
bool scan_ascending(const int32_t* values, int64_t count);
bool scan_ascending(const int64_t* values, int64_t count);

int64_t scan_set_bits(const uint64_t* words, int64_t count);

}  // namespace pyg_batchgnn
