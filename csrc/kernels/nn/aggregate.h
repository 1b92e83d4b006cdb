// Weighted sums and means over in-edges: the sparse half of every layer, forward and backward.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Of a result that is the gradient g of relu((x - center) * scale + shift): the sums over all rows of g and
// of g * (x - center), where the ReLU lets g pass, taken while rows of g are written.
struct NormedGradient {
  const float* x = nullptr;        // [targets, columns]; null where the result is nothing of that kind
  const float* columns = nullptr;  // [3, columns] center, scale and shift
  double* sums = nullptr;          // [2, columns]
};

// out[i] = target_scale[i] * sum over in-edges e of edge_weight[edge[e]] * source_scale[s] * x[row[s]]
//          + self_scale[i] * self[i],       s = indices[e]
// where what is absent counts as one (`row`, `edge`: as the identity; `self`: as nothing). Weights and scales
// are float, and double where the output is. Sums are taken in that type in the order of the edges.
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
  int64_t self_rows = 0;  // only targets below have a self part
  const void* self_scale = nullptr;
  bool self_scale_each = false;  // else one scale for all

  // [3, columns] center, scale and shift of float rows x and self, which then stand for
  // relu((x - center) * scale + shift); null where they are what they are. Only where sums are float.
  const float* normed = nullptr;
  NormedGradient gradient{};  // only of float rows

  void* out;  // [targets, columns]
  Element out_element;
};

// The same bits on any number of threads.
void aggregate(const Aggregation& job, int64_t threads);

}  // namespace pyg_batchgnn
