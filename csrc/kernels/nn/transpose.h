// The edges of a layer by source, along which gradients flow.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Sorts the edges of a graph by target, in a stable order, by source: ptr [sources + 1]; the target
// (int32) of each edge and its position in the order by target. Threads take ranges of sources, so
// the result does not depend on them.
template <class EdgeId>
void transpose(const int64_t* indptr, Integers indices, int64_t targets, int64_t sources, int64_t* ptr,
               int32_t* target, EdgeId* edge, int64_t threads);

}  // namespace pyg_batchgnn
