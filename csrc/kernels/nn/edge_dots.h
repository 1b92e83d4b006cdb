// Inner products along edges: the gradients of edge weights and of the weight of a row's own part.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

struct EdgeDots {
  const int64_t* indptr;  // [targets + 1]
  Integers indices{};
  int64_t targets;
  int64_t columns;
  Matrix x{};
  Integers row{};
  Matrix grad{};  // [targets, columns]
  const void* source_scale = nullptr;
  const void* target_scale = nullptr;
  bool mean = false;
};

// out[e] = target_scale[i] * source_scale[s] * <grad[i], x[row[s]]> for the edge e from s to i.
// Scales and results are float, or double if `grad` is.
void edge_dots(const EdgeDots& job, void* out, int64_t threads);

// out[i] = <grad[i], x[row[i]]> for every target, or their sum in out[0] unless `each`.
void self_dots(const EdgeDots& job, bool each, void* out, int64_t threads);

}  // namespace pyg_batchgnn
