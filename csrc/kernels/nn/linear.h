// Dense layers: a sum of products with what follows them (bias, ReLU, dropout) in one pass, and its
// gradients.
//
// Rows of an input may lie anywhere in a table; elements may be narrower than what is computed with, and are
// converted where they are read.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/nn/moments.h"
#include "kernels/simd/products.h"

namespace pyg_batchgnn {

struct LinearInput {
  const void* data;
  Element element;
  int64_t stride;                  // between rows, elements
  const void* rows;                // where each row lies, int32 or int64; null: at its own number
  bool wide_rows;                  // int64
  int64_t columns;                 // of all groups
  const double* center = nullptr;  // [columns] taken from rows that a weight's gradient reads; or null
  bool after_relu = false;         // made by a ReLU: the gradient of a zero may be given as zero

  const char* row(int64_t i) const {
    int64_t at = i;
    if (rows != nullptr) {
      at = wide_rows ? static_cast<const int64_t*>(rows)[i] : static_cast<const int32_t*>(rows)[i];
    }
    return static_cast<const char*>(data) + at * stride * element_bytes(element);
  }
};

// [outputs, columns of one group], contiguous. Group g owns the rows [g, g + 1) * outputs / groups.
struct LinearWeight {
  const void* data;
  Element element;
};

struct LinearShape {
  int64_t rows, outputs, groups;
  Element
      compute;  // what inputs and weights are rounded to: kFloat32, kBFloat16 (sums are float32), kFloat64

  int64_t group_outputs() const { return outputs / groups; }
};

struct LinearUpdate {
  const void* bias;  // [outputs] or null
  Element bias_element;
  bool relu;
  double drop;          // 0: no dropout
  uint64_t key;         // of dropout
  const int64_t* node;  // [rows] ids for dropout; null: the row's number
};

struct LinearOutput {
  void* y;        // [rows, outputs] of the shape's `compute`
  uint8_t* mask;  // [rows, ceil(outputs / 8)] which elements passed ReLU and dropout; or null
  // Of y's columns; or null. Only of what is not rounded further: no bfloat16, ReLU or dropout.
  ColumnMoments moments{};
};

template <class T>
void linear(const LinearShape& shape, const std::vector<LinearInput>& inputs,
            const std::vector<LinearWeight>& weights, const LinearUpdate& update, const LinearOutput& output,
            int64_t threads);

// Batch normalisation behind the layer, and ReLU: the gradient is that of normalised rows.
struct NormedRows {
  const void* x;        // [rows, outputs] the layer's result, of the gradient's element
  const void* columns;  // GradientColumns, of the type that bfloat16 and float32 (float64) are computed in
  bool relu;
};

struct LinearGradient {
  const void* grad;  // [rows, outputs]
  Element element;
  const uint8_t* mask;  // or null
  double scale;
  const NormedRows* norm = nullptr;  // or null; not beside a mask
};

// The layer whose ReLU made an input that a ReLU made, itself without a gradient for its input.
struct LinearBefore {
  LinearInput input;
  void* weight;  // gradients: [outputs, input's columns]
  void* bias;    // [outputs]
  Element element;
};

// Null where a gradient is not wanted. Those of inputs have the input's element, those of weights and bias
// the weight's.
struct LinearWanted {
  std::vector<void*> inputs;   // [rows, columns of all groups]
  std::vector<void*> weights;  // as the weights
  void* bias;                  // [outputs]
  // In place of the only input's, which a ReLU made; or null. Then the weight's is wanted, too, and there is
  // one group and a norm.
  const LinearBefore* before = nullptr;
};

template <class T>
void linear_grads(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                  const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
                  const LinearWanted& wanted, int64_t threads);

}  // namespace pyg_batchgnn
