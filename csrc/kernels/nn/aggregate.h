// Weighted sums and means over in-edges: the sparse part of every layer, forward and backward.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Column sums of a result that is the gradient g of relu((x - center) * scale + shift): over all
// rows, of g and of g * (x - center), where the ReLU passes g. They are taken while the rows of g
// are written.
struct NormedGradient {
  const float* x = nullptr;        // [targets, columns]; null if no sums are wanted
  const float* columns = nullptr;  // [3, columns] center, scale and shift
  double* sums = nullptr;          // [2, columns]
};

// out[i] = target_scale[i] * sum over in-edges e of weight[e] * source_scale[s] * x[row[s]]
//          + self_scale[i] * self[i],   s = indices[e],   weight[e] = edge_weight[edge[e]]
//
// A missing factor counts as one, a missing `row` or `edge` as the identity, and a missing `self`
// as zero. Weights and scales are float, or double if the output is. Sums are taken in that type in
// the order of the edges.
struct Aggregation {
  const int64_t* indptr;  // [targets + 1]
  Integers indices{};
  int64_t targets;
  int64_t columns;

  Matrix x{};
  Integers row{};
  Integers edge{};
  const void* edge_weight = nullptr;
  const void* source_scale = nullptr;
  const void* target_scale = nullptr;
  bool mean = false;  // divide by the number of in-edges

  Matrix self{};
  Integers self_row{};
  int64_t self_rows = 0;  // only the targets below have a self part
  const void* self_scale = nullptr;
  bool self_scale_each = false;  // else one scale for all

  // [3, columns] center, scale and shift. Rows of x and self then stand for relu((x - center) *
  // scale + shift). Null otherwise. Only for float rows and float sums.
  const float* normed = nullptr;
  NormedGradient gradient{};  // only of float rows

  void* out;  // [targets, columns]
  Element out_element;
};

// The result has the same bits on any number of threads.
void aggregate(const Aggregation& job, int64_t threads);

}  // namespace pyg_batchgnn
