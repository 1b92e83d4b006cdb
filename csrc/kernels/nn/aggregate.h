// Weighted sums and means over in-edges: the sparse part of every layer, forward and backward.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// In-edges by target, and the table that has row row[s] for the source s.
struct InEdgeRows {
  const int64_t* indptr;  // [targets + 1]
  Integers indices;
  int64_t targets, columns;
  Matrix x;
  Integers row{};
};

struct EdgeFactors {
  const void* source_scale = nullptr;
  const void* target_scale = nullptr;
  bool mean = false;  // divide by the number of in-edges
};

// out[i] = target_scale[i] * sum over in-edges e of weight[e] * source_scale[s] * x[row[s]]
//          + self_scale[i] * self[i],   s = indices[e],   weight[e] = edge_weight[edge[e]]
//
// A missing factor counts as one, a missing `row` or `edge` as the identity, and a missing `self`
// as zero. Weights and scales are float, or double if the output is. Sums are taken in that type in
// the order of the edges.
//
// If x are codes, so is `self`, with the decoding of x. Codes are summed, and the sums decoded: the
// scale of a column once, and its offset times the sum of all factors.
struct Aggregation : InEdgeRows, EdgeFactors {
  void* out;  // [targets, columns]
  Element out_element;

  Integers edge{};
  const void* edge_weight = nullptr;

  Matrix self{};
  Integers self_row{};
  int64_t self_rows = 0;  // only the targets below have a self part
  const void* self_scale = nullptr;
  bool self_scale_each = false;  // else one scale for all
};

// The result has the same bits on any number of threads.
void aggregate(const Aggregation& job, int64_t threads);

// Columnwise maxima over in-edges.

// Sets out[i] to the maximum of x[row[s]] over in-edges, 0 for targets without in-edges. A NaN is
// the maximum. The maximum of codes is decoded: scales are positive.
void max_rows(const InEdgeRows& job, void* out, Element out_element, int64_t threads);

// Sets share[i, c] = grad[i, c] / the number of in-edges of i that reach the maximum out[i, c];
// double if `out` is, else float. The zero that torch's scatter starts from counts as reaching a
// maximum of zero, as in torch.
void share_among_maxima(const InEdgeRows& job, Matrix out, Matrix grad, void* share, int64_t threads);

// Sets out[s, c] to the sum of share[i, c] over the out-edges to i with x[s, c] = maximum[i, c], in
// the type of x. `job` is the graph by source: its targets are the sources, and its x the maxima.
void gather_shares(const InEdgeRows& job, Matrix x, Matrix share, void* out, int64_t threads);

// Inner products along edges: the gradients of edge weights and of the weight of a row's own part.

struct EdgeDots : InEdgeRows, EdgeFactors {
  Matrix grad;  // [targets, columns]
};

// out[e] = target_scale[i] * source_scale[s] * <grad[i], x[row[s]]> for the edge e from s to i.
// Scales and results are float, or double if `grad` is.
void edge_dots(const EdgeDots& job, void* out, int64_t threads);

// out[i] = <grad[i], x[row[i]]> for every target, or their sum in out[0] unless `each`.
void self_dots(const EdgeDots& job, bool each, void* out, int64_t threads);

}  // namespace pyg_batchgnn
