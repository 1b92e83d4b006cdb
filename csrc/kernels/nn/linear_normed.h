// The gradient of a layer's result from that of its normalised rows, made where it is read.
#pragma once

#include "kernels/nn/linear.h"
#include "kernels/nn/norm.h"

namespace pyg_batchgnn {

// Of one row.
template <class T>
void normed_row(const LinearGradient& gradient, int64_t row, int64_t outputs, T* out) {
  const NormedRows& norm = *gradient.norm;
  using A = Wide<T>;
  // Nobody writes to the columns here.
  const GradientColumns<A> by{const_cast<A*>(static_cast<const A*>(norm.columns)), outputs};
  gradient_rows(Rows<T>{static_cast<const T*>(norm.x) + row * outputs, 1, outputs},
                static_cast<const T*>(gradient.grad) + row * outputs, by.affine(),
                norm.relu ? Epilogue::kRelu : Epilogue::kNone, by.constant(), by.slope(), out);
}

// What is read of rows [begin, end) beside the inputs, to be fetched ahead.
inline void foresee_gradient(const LinearGradient& gradient, int64_t outputs, int64_t begin, int64_t end,
                             std::vector<Ahead::Row>& rows) {
  const int64_t row_bytes = outputs * element_bytes(gradient.element);
  if (row_bytes == 0 || begin >= end) return;
  for (const void* from : {gradient.grad, gradient.norm == nullptr ? nullptr : gradient.norm->x}) {
    const char* const first = static_cast<const char*>(from);
    if (from != nullptr) rows.push_back({first + begin * row_bytes, first + end * row_bytes});
  }
}

}  // namespace pyg_batchgnn
