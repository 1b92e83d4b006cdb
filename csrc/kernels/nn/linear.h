// Dense layers: a sum of products with bias, ReLU and dropout in one pass, and its gradients.
//
// Rows of an input may lie anywhere in a table. Elements may be narrower than the type of the
// computation; they are converted when they are read.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/nn/norm.h"
#include "kernels/simd/products.h"

namespace pyg_batchgnn {

struct LinearInput : Matrix {
  Integers rows;            // the position of each row; false: in order
  int64_t columns;          // of all groups
  bool after_relu = false;  // made by a ReLU: the gradient of a zero may be given as zero

  const char* row(int64_t i) const { return Matrix::row(rows ? rows[i] : i); }
};

// [outputs, columns of one group], contiguous. Group g owns the rows [g, g + 1) * outputs / groups.
struct LinearWeight {
  const void* data;
  Element element;
};

struct LinearShape {
  int64_t rows, outputs, groups;
  Element compute;  // the type of inputs and weights: kFloat32, kBFloat16 (sums are float32), kFloat64

  int64_t group_outputs() const { return outputs / groups; }
};

struct LinearUpdate {
  const void* bias;  // [outputs] or null
  Element bias_element;
  bool relu;
  double drop;          // 0: no dropout
  uint64_t key;         // of dropout
  const int64_t* node;  // [rows] ids of rows for dropout; null: row numbers
};

struct LinearOutput {
  void* y;        // [rows, outputs] of the shape's `compute`
  uint8_t* mask;  // [rows, ceil(outputs / 8)] bits of the elements that passed; or null
  // The moments of the columns of y, or null. Only for results that are not changed further:
  // without bfloat16, ReLU and dropout.
  ColumnMoments moments{};
};

struct Linear {
  const LinearShape& shape;
  const std::vector<LinearInput>& inputs;
  const std::vector<LinearWeight>& weights;
  const LinearUpdate& update;
  const LinearOutput& output;
};

void linear(const Linear& job, int64_t threads);

// Batch normalisation and ReLU after the layer. The gradient is that of the normalised rows.
struct NormedRows {
  const void* x;        // [rows, outputs] the result of the layer, of the gradient's element type
  const void* columns;  // GradientColumns of float, or of double for float64
  bool relu;
};

struct LinearGradient {
  const void* grad;  // [rows, outputs]
  Element element;
  const uint8_t* mask;  // or null
  double scale;
  const NormedRows* norm = nullptr;  // or null; not together with a mask
};

// The wanted gradients; others are null. Gradients of inputs have the element type of the input,
// those of weights and bias that of the weight.
struct LinearWanted {
  std::vector<void*> inputs;   // [rows, columns of all groups]
  std::vector<void*> weights;  // as the weights
  void* bias;                  // [outputs]
};

struct LinearGrads {
  const LinearShape& shape;
  const std::vector<LinearInput>& inputs;
  const std::vector<LinearWeight>& weights;
  const LinearGradient& gradient;
  const LinearWanted& wanted;

  int64_t group_columns(size_t input) const { return inputs[input].columns / shape.groups; }
};

void linear_grads(const LinearGrads& job, int64_t threads);

// The same in bfloat16, for processors that multiply pairs of it, and for those with a matrix unit.
// They return false, and do nothing, where they cannot compute these gradients.
bool linear_grads_pairs(const LinearGrads& job, int64_t threads);
bool linear_grads_tiles(const LinearGrads& job, int64_t threads);

}  // namespace pyg_batchgnn
