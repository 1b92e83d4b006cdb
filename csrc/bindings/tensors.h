// Converts between torch's tensors and the kernels' pointers. Python has checked the arguments.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/operand.h"

namespace pyg_batchgnn {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

// Returns whether int32 holds the ids 0 to count - 1.
constexpr bool fits_int32(int64_t count) { return count <= int64_t{1} << 31; }

template <class T>
constexpr ScalarType kScalarType = std::is_same_v<T, double>  ? ScalarType::Double
                                   : std::is_same_v<T, float> ? ScalarType::Float
                                   : sizeof(T) == 8           ? ScalarType::Long
                                   : sizeof(T) == 4           ? ScalarType::Int
                                                              : ScalarType::Byte;

// Returns a tensor over a block, which returns to the cache with the last tensor over it.
inline Tensor adopt_block(void* block, const std::vector<int64_t>& sizes, ScalarType dtype) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t dim = sizes.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * sizes[dim];
  return torch::stable::from_blob(block, {sizes.data(), sizes.size()}, {strides.data(), strides.size()},
                                  torch::stable::Device(torch::headeronly::DeviceType::CPU), dtype,
                                  &release_block);
}

template <class T>
Tensor adopt(Buffer<T> buffer, const std::vector<int64_t>& sizes) {
  buffer.reserve(1);
  return adopt_block(buffer.take(), sizes, kScalarType<T>);
}

inline int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Pointers ////////////////////////////////////////////////////////////////////////////////////////

template <class T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <class T>
T* mutable_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Null without a tensor.
template <class T>
const T* data_or_null(const OptionalTensor& tensor) {
  return tensor.has_value() ? data<T>(*tensor) : nullptr;
}

inline const void* pointer(const OptionalTensor& tensor) {
  return tensor.has_value() ? tensor->const_data_ptr() : nullptr;
}

// Types ///////////////////////////////////////////////////////////////////////////////////////////

inline bool is_wide(const Tensor& tensor) { return tensor.scalar_type() == ScalarType::Long; }

// Calls body with a value of the tensor's integer type.
template <class Body>
auto with_integer(const Tensor& tensor, const Body& body) {
  return is_wide(tensor) ? body(int64_t{}) : body(int32_t{});
}

inline Integers integers(const Tensor& tensor) { return {tensor.const_data_ptr(), is_wide(tensor)}; }
inline Integers integers(const OptionalTensor& tensor) {
  return tensor.has_value() ? integers(*tensor) : Integers{};
}

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
    case ScalarType::Char:
      return Element::kInt8;
    default:
      throw std::invalid_argument("not a floating-point type that kernels compute with");
  }
}

// The scales and offsets of the columns of codes, [2, columns].
inline Decoding decoding_of(const OptionalTensor& tensor) {
  if (!tensor.has_value()) return {};
  return {data<float>(*tensor), data<float>(*tensor) + tensor->size(1)};
}

inline Matrix matrix(const Tensor& tensor, const OptionalTensor& decoding = std::nullopt) {
  return {tensor.const_data_ptr(), element_of(tensor.scalar_type()), tensor.stride(0), decoding_of(decoding)};
}

// Calls body with a value of the tensor's element type, float or double.
template <class Body>
void with_wide_float(const Tensor& tensor, const Body& body) {
  tensor.scalar_type() == ScalarType::Double ? body(double{}) : body(float{});
}

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

// Results /////////////////////////////////////////////////////////////////////////////////////////

// Returns an uninitialised tensor of items of `item` bytes. Throws std::bad_alloc.
inline Tensor new_items(const std::vector<int64_t>& sizes, ScalarType dtype, int64_t item) {
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(item, size, &item)) throw std::bad_alloc();
  }
  return adopt_block(allocate_block(static_cast<size_t>(std::max<int64_t>(item, 1))), sizes, dtype);
}

template <class T>
Tensor new_array(const std::vector<int64_t>& sizes) {
  return new_items(sizes, kScalarType<T>, sizeof(T));
}

// Returns an uninitialised tensor of floating-point numbers.
inline Tensor new_tensor(const std::vector<int64_t>& sizes, ScalarType dtype) {
  return new_items(sizes, dtype, element_bytes(element_of(dtype)));
}

inline Tensor new_tensor_like(const Tensor& tensor) {
  return new_tensor({tensor.sizes().begin(), tensor.sizes().end()}, tensor.scalar_type());
}

// One number per column, in double for every dtype of the tensors. Becomes a tensor.
class Column {
 public:
  explicit Column(int64_t count) : count_(count) { values_.reserve(count + 1); }

  double* data() const { return values_.data(); }
  Tensor tensor() && { return adopt(std::move(values_), {count_}); }

 private:
  Buffer<double> values_;
  int64_t count_;
};

inline Column copy_of(const Tensor& values) {
  Column copy(values.numel());
  with_float(values, [&](auto type) {
    using T = decltype(type);
    for (int64_t c = 0; c < values.numel(); ++c) copy.data()[c] = widen(data<T>(values)[c]);
  });
  return copy;
}

inline std::optional<Column> copy_of(const OptionalTensor& values) {
  if (!values.has_value()) return std::nullopt;
  return copy_of(*values);
}

inline double* pointer(const std::optional<Column>& column) { return column ? column->data() : nullptr; }

// What lives longer than a call ///////////////////////////////////////////////////////////////////

template <class T>
struct HeldState {
  static constexpr char kMark = 0;  // its address tells the types apart
  const void* mark = &kMark;
  std::unique_ptr<T> object;
};

// Returns a tensor that holds the object. The object is freed with the tensor, also after an error.
template <class T>
Tensor hold(std::unique_ptr<T> object) {
  using State = HeldState<T>;
  auto state = std::make_unique<State>();
  state->object = std::move(object);
  const std::vector<int64_t> size{sizeof(State)}, stride{1};
  const Tensor tensor =
      torch::stable::from_blob(state.get(), {size.data(), 1}, {stride.data(), 1},
                               torch::stable::Device(torch::headeronly::DeviceType::CPU), ScalarType::Byte,
                               [](void* memory) { delete static_cast<State*>(memory); });
  state.release();
  return tensor;
}

// Returns the object of a tensor that `hold` made.
template <class T>
T& held(const Tensor& tensor) {
  using State = HeldState<T>;
  const auto* state = data<State>(tensor);
  if (tensor.numel() != sizeof(State) || state->mark != &State::kMark) {
    throw std::runtime_error("expected the state that an operator returned");
  }
  return *state->object;
}

}  // namespace pyg_batchgnn
