// Objects that live from one call of an operator to the next, as the memory of a tensor.
#pragma once

#include <memory>
#include <stdexcept>

#include "bindings/tensors.h"

namespace pyg_batchgnn {

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
  const auto* state = static_cast<const State*>(tensor.const_data_ptr());
  if (tensor.numel() != sizeof(State) || state->mark != &State::kMark) {
    throw std::runtime_error("expected the state that an operator returned");
  }
  return *state->object;
}

}  // namespace pyg_batchgnn
