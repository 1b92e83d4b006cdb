// The dtype of a tensor in the kernels' terms, and new tensors for results.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "bindings/tensors.h"
#include "kernels/element.h"

namespace pyg_batchgnn {

inline Element element_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Double:
      return Element::kFloat64;
    case ScalarType::Half:
      return Element::kFloat16;
    case ScalarType::BFloat16:
      return Element::kBFloat16;
    case ScalarType::Float:
      return Element::kFloat32;
    default:
      throw std::invalid_argument("not a floating-point type that kernels compute with");
  }
}

// Returns an uninitialised tensor.
inline Tensor new_tensor(const std::vector<int64_t>& sizes, ScalarType dtype) {
  int64_t bytes = element_bytes(element_of(dtype));
  for (const int64_t size : sizes) bytes *= size;
  return adopt_block(allocate_block(static_cast<size_t>(std::max<int64_t>(bytes, 1))), sizes, dtype);
}

}  // namespace pyg_batchgnn
