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

// out[i] = max of x[row[s]] over in-edges, 0 for targets without any; a NaN among them is the maximum.
void max_rows(const MaxJob& job, void* out, Element out_element, int64_t threads);

// share[i, c] = grad[i, c] / how many of i's in-edges reach the maximum out[i, c]; double where `out` is,
// else float. torch counts the zero that its scatter starts from among those that reach a maximum of zero,
// and so do we.
void share_among_maxima(const MaxJob& job, Matrix out, Matrix grad, void* share, int64_t threads);

// out[s, c] = sum of share[i, c] over the out-edges to i with x[s, c] = maximum[i, c], in x's type. `job` is
// the graph by source: its targets are the sources, its x the maxima.
void gather_shares(const MaxJob& job, Matrix x, Matrix share, void* out, int64_t threads);

}  // namespace pyg_batchgnn
