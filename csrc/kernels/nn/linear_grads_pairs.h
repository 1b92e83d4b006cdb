// The gradients of a dense layer in bfloat16, for processors that multiply pairs of it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/nn/linear.h"

namespace pyg_batchgnn {

// Returns whether linear_grads_pairs can compute in `compute`.
bool has_pair_grads(Element compute);

void linear_grads_pairs(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                        const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
                        const LinearWanted& wanted, int64_t threads);

}  // namespace pyg_batchgnn
