// The gradient of a layer's result, computed from that of its normalised rows when it is read.
#pragma once

#include <vector>

#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/norm.h"

namespace pyg_batchgnn {

// Computes one row.
template <class T>
void normed_row(const LinearGradient& gradient, int64_t row, int64_t outputs, T* out) {
  const NormedRows& norm = *gradient.norm;
  using A = Wide<T>;
  // The columns are only read here.
  const GradientColumns<A> by{const_cast<A*>(static_cast<const A*>(norm.columns)), outputs};
  gradient_rows(Rows<T>{static_cast<const T*>(norm.x) + row * outputs, 1, outputs},
                static_cast<const T*>(gradient.grad) + row * outputs, by.affine(),
                norm.relu ? Epilogue::kRelu : Epilogue::kNone, by.constant(), by.slope(), out);
}

// Starts to fetch rows [begin, end) of the gradient, of the normalised rows and of `inputs` (or
// null).
inline void prefetch_block(const LinearGradient& gradient, int64_t outputs,
                           const std::vector<LinearInput>* inputs, int64_t begin, int64_t end,
                           BlockPrefetch& next) {
  next.clear();
  const int64_t row_bytes = outputs * element_bytes(gradient.element);
  for (const void* from : {gradient.grad, gradient.norm == nullptr ? nullptr : gradient.norm->x}) {
    if (from == nullptr || begin >= end) continue;
    next.add(static_cast<const char*>(from) + begin * row_bytes, (end - begin) * row_bytes);
  }
  if (inputs != nullptr) {
    for (const LinearInput& input : *inputs) next.add(input, begin, end);
  }
  next.start();
}

}  // namespace pyg_batchgnn
