// oneCCL's names for torch's types and reductions.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ccl/library.h"

namespace pyg_batchgnn {

// Throws a TypeError that lists oneCCL's types if it has no such type. Booleans travel as bytes.
::ccl::datatype datatype_of(const at::Tensor& tensor);

// The way in which oneCCL reduces tensors of one type, and what remains to do afterwards.
struct Reduction {
  ::ccl::reduction operation;
  bool divide;  // AVG of floating-point tensors: divide by the number of ranks
};

// For booleans, SUM and MAX are "or", PRODUCT and MIN are "and". Throws if oneCCL cannot do it.
Reduction reduction_of(const c10d::ReduceOp& operation, const at::Tensor& tensor);

}  // namespace pyg_batchgnn
