// Converts between torch's tensors and the kernels' pointers. Python has checked shapes, dtypes and
// ranges.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <initializer_list>
#include <vector>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Returns whether int32 holds the ids 0 to count - 1.
constexpr bool fits_int32(int64_t count) { return count <= int64_t{1} << 31; }

template <class T>
constexpr ScalarType kScalarType = sizeof(T) == 8 ? ScalarType::Long : ScalarType::Int;

// Returns a tensor over a block. The block returns to the cache with the last tensor that shares
// it.
inline Tensor adopt_block(void* block, const std::vector<int64_t>& sizes, ScalarType dtype) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= sizes[dim];
  }
  return torch::stable::from_blob(block, {sizes.data(), sizes.size()}, {strides.data(), strides.size()},
                                  torch::stable::Device(torch::headeronly::DeviceType::CPU), dtype,
                                  &release_block);
}

template <class T>
Tensor adopt(Buffer<T> buffer, const std::vector<int64_t>& sizes) {
  buffer.reserve(1);
  return adopt_block(buffer.take(), sizes, kScalarType<T>);
}

template <class T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

inline bool is_wide(const Tensor& tensor) { return tensor.scalar_type() == ScalarType::Long; }

// Calls body with a value of the tensor's integer type.
template <class Body>
auto with_integer(const Tensor& tensor, const Body& body) {
  return is_wide(tensor) ? body(int64_t{}) : body(int32_t{});
}

}  // namespace pyg_batchgnn
