// Floating-point tensors for the kernels of layers.
#pragma once

#include <stdexcept>
#include <vector>

#include "bindings/tensors.h"
#include "kernels/bfloat16.h"

namespace pyg_batchgnn {

// Calls body with a value of the tensor's element type: float, double or Bfloat16.
template <class Body>
void with_float(const Tensor& tensor, const Body& body) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return body(float{});
    case ScalarType::Double:
      return body(double{});
    case ScalarType::BFloat16:
      return body(Bfloat16{});
    default:
      throw std::runtime_error("expected float32, float64 or bfloat16");
  }
}

template <class T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Returns an uninitialised tensor of the same dtype, over a block of the cache.
inline Tensor empty_like_block(const Tensor& tensor, const std::vector<int64_t>& sizes) {
  size_t bytes = tensor.element_size();
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  return adopt_block(allocate_block(bytes), sizes, tensor.scalar_type());
}

// Returns one of the same sizes too.
inline Tensor empty_like_block(const Tensor& tensor) {
  return empty_like_block(tensor, {tensor.sizes().begin(), tensor.sizes().end()});
}

}  // namespace pyg_batchgnn
