// One number per column, in double for every dtype of the tensors.
#pragma once

#include <optional>

#include "bindings/floats.h"

namespace pyg_batchgnn {

// A vector of doubles that becomes a tensor.
class Column {
 public:
  explicit Column(int64_t count) : count_(count) { values_.reserve(count + 1); }

  double* data() const { return values_.data(); }
  Tensor tensor() && { return adopt_block(values_.take(), {count_}, ScalarType::Double); }

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

inline std::optional<Column> copy_of(const std::optional<Tensor>& values) {
  if (!values.has_value()) return std::nullopt;
  return copy_of(*values);
}

inline double* pointer(const std::optional<Column>& column) { return column ? column->data() : nullptr; }

}  // namespace pyg_batchgnn
