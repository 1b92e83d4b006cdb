// What torch's types and reductions are called in oneCCL.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ccl/library.h"

namespace pyg_batchgnn {

// Throws a TypeError that lists what oneCCL has where it has no such type. Booleans travel as bytes.
::ccl::datatype datatype_of(const at::Tensor& tensor);

// How oneCCL is to reduce tensors of one type, and what is left to do afterwards.
struct Reduction {
  ::ccl::reduction operation;
  bool divide;  // by the number of ranks: AVG, of floating-point tensors
};

// Of booleans SUM and MAX are "or", PRODUCT and MIN are "and". Throws where oneCCL cannot do it.
Reduction reduction_of(const c10d::ReduceOp& operation, const at::Tensor& tensor);

}  // namespace pyg_batchgnn
