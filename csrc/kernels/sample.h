// Samples one minibatch with the fused kernel of FastSample (section 3.2), which writes the
// compressed graph directly.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/growth.h"
#include "kernels/pick.h"

namespace pyg_batchgnn {

struct Plan {
  std::vector<int64_t> fanouts;  // by hop, from the seeds on; kAllNeighbours for all
  Replacement replacement;
  bool edge_ids;  // returns input edge ids
  uint64_t seed;
  uint64_t epoch;
};

// `seeds` are valid node ids. Throws std::bad_alloc, or std::length_error if local ids would exceed
// 2^31.
template <class Index, class Local>
Sampled<Local> sample_minibatch(const Csc<Index>& graph, const Plan& plan, const int64_t* seeds,
                                int64_t count, Layout layout, Scratch<Index>& scratch);

}  // namespace pyg_batchgnn
