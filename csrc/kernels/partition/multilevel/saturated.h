// Sums of weights of edges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pyg_batchgnn {

// Returns the sum, or the largest weight that an edge can have.
inline int32_t saturated(int64_t sum) {
  return static_cast<int32_t>(std::min<int64_t>(sum, std::numeric_limits<int32_t>::max()));
}

}  // namespace pyg_batchgnn
