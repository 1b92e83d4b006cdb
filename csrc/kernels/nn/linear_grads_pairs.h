// The gradients of a dense layer in bfloat16, where the processor multiplies pairs of it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/nn/linear.h"

namespace pyg_batchgnn {

// Whether linear_grads_pairs can be called for what is computed with.
bool has_pair_grads(Element compute);

void linear_grads_pairs(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                        const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
                        const LinearWanted& wanted, int64_t threads);

}  // namespace pyg_batchgnn
