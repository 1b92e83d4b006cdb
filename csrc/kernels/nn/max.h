// Columnwise maxima over in-edges.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

struct MaxJob {
  const int64_t* indptr;  // [targets + 1]
  Integers indices{};
  int64_t targets;
  int64_t columns;
  Matrix x{};
  Integers row{};
};

// Sets out[i] to the maximum of x[row[s]] over in-edges, 0 for targets without in-edges. A NaN is
// the maximum.
void max_rows(const MaxJob& job, void* out, Element out_element, int64_t threads);

// Sets share[i, c] = grad[i, c] / the number of in-edges of i that reach the maximum out[i, c];
// double if `out` is, else float. The zero that torch's scatter starts from counts as reaching a
// maximum of zero, as in torch.
void share_among_maxima(const MaxJob& job, Matrix out, Matrix grad, void* share, int64_t threads);

// Sets out[s, c] to the sum of share[i, c] over the out-edges to i with x[s, c] = maximum[i, c], in
// the type of x. `job` is the graph by source: its targets are the sources, and its x the maxima.
void gather_shares(const MaxJob& job, Matrix x, Matrix share, void* out, int64_t threads);

}  // namespace pyg_batchgnn
