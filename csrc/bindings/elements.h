// The type of a tensor's elements as the kernels of dense layers name it.
#pragma once

#include "bindings/tensors.h"
#include "kernels/simd/products.h"

namespace pyg_batchgnn {

inline Element element_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Double:
      return Element::kFloat64;
    case ScalarType::Half:
      return Element::kFloat16;
    case ScalarType::BFloat16:
      return Element::kBFloat16;
    default:
      return Element::kFloat32;
  }
}

}  // namespace pyg_batchgnn
