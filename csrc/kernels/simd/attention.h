// The inner loops of graph attention, compiled for each kind of processor. csrc/kernels/nn/attention.h says
// what is computed; arrays without a type are float32, or float64 for float64 rows.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Lists of rows go on for so many places, whose rows may be fetched and are not used.
constexpr int64_t kMostRowsAhead = 32;

// Some consecutive destinations and the rows that each sums over.
struct AttentionBlock {
  int64_t first, targets;
  const int64_t* begin;     // [targets + 1] into the lists below
  const char* const* rows;  // where each source's row lies
  const int32_t* place;     // each row's slot, counted from the destination's first
  const uint8_t* keep;      // [rows, heads] whether dropout keeps a coefficient; null where there is none
  const int64_t* slots;     // [targets + 1] where each destination's slots begin
  const char* const* self;  // [targets] the destinations' own rows, where there is a target weight
  void* scratch;            // attention_scratch(...) numbers
};

// Numbers of scratch memory for a block whose longest list is `longest`.
int64_t attention_scratch(int64_t longest, int64_t heads, int64_t columns);

struct AttentionWeights {
  int64_t heads, columns;
  double slope, scale;  // of what dropout keeps
  const void* source;
  const void* target;  // or null
};

struct AttentionForward {
  AttentionWeights weights;
  const void* target_logits;  // or null
  const void* edge_logits;    // or null
  void* out;
  Element out_type;
  bool stream;  // past the caches, where rows are whole cache lines and `out` begins on one
  void* coefficient;
};

struct AttentionBackward {
  AttentionWeights weights;
  const void* coefficient;
  const void* grad;
  Element grad_type;
  const void* grad_coefficient;  // or null
  void* target_logits;           // gradient
  void* edge_logits;             // gradient, or null
  void* pairs;                   // [slots, 2, heads] dropped-out alpha, gradient of the logit; or null
  void* partial;                 // [2, heads, columns] the block's share of the weights' gradients, from zero
};

// Some consecutive sources and where their edges go.
struct AttentionSources {
  int64_t first, sources;
  const int64_t* begin;      // [sources + 1] into the lists below
  const char* const* grads;  // the destination's row of the gradient of z
  const void* const* pairs;  // as above
  void* scratch;             // attention_scratch(0, ...) numbers
};

struct AttentionInputGrad {
  AttentionWeights weights;
  Element grad_type;
  const void* target_logits;  // gradient, [targets, heads]
  int64_t targets;
  void* out;
  Element out_type;
};

struct AttentionKernels {
  void (*forward)(Element type, const AttentionForward& task, const AttentionBlock& block);
  void (*backward)(Element type, const AttentionBackward& task, const AttentionBlock& block);
  void (*input_grad)(const AttentionInputGrad& task, const AttentionSources& block);
};

const AttentionKernels& attention_kernels();

}  // namespace pyg_batchgnn
