// Samples one minibatch with a fused kernel as in FastSample (section 3.2), which writes the
// compressed graph of each relation directly.
#pragma once

#include <cstdint>

#include "kernels/sample/graph.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// Throws std::bad_alloc, or std::length_error for more than 2^31 local ids or 2^63 codes.
template <class Index>
SampledMinibatch sample_minibatch(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds,
                                  Scratch<Index>& scratch);

}  // namespace pyg_batchgnn
