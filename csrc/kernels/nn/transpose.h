// A layer's edges by source: what gradients flow along.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Sorts the edges of a graph by target, stably, by source: ptr [sources + 1]; of each edge its target
// (int32) and its place in the order by target. Threads take ranges of sources, so nothing depends on them.
template <class EdgeId>
void transpose(const int64_t* indptr, Integers indices, int64_t targets, int64_t sources, int64_t* ptr,
               int32_t* target, EdgeId* edge, int64_t threads);

}  // namespace pyg_batchgnn
