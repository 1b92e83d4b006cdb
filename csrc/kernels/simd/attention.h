// The inner loops of graph attention. csrc/kernels/nn/attention.h gives the formulas. Arrays
// without a type are float32, or float64 for float64 rows.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Lists of rows have this many further entries, whose rows may be fetched and are not used.
constexpr int64_t kMostRowsAhead = 32;

// Consecutive destinations and the rows that each sums over.
struct AttentionBlock {
  int64_t first, targets;
  const int64_t* begin;     // [targets + 1] into the lists below
  const char* const* rows;  // the row of each source
  const int32_t* place;     // the slot of each row, from the first one of the destination
  const uint8_t* keep;      // [rows, heads] 1 if dropout keeps a coefficient, else 0; null without
                            // dropout
  const int64_t* slots;     // [targets + 1] the first slot of each destination
  const char* const* self;  // [targets] the own rows of the destinations, if there is a target
                            // weight
  void* scratch;            // attention_scratch(...) numbers
};

// Returns how many numbers of scratch memory a block with lists of at most `longest` entries takes.
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
  bool stream;  // writes past the caches; rows are whole cache lines and `out` begins on one
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
  void* pairs;                   // [slots, 2, heads] alpha after dropout, gradient of the logit; or
                                 // null
  void* partial;                 // [2, heads, columns] the share of the block in the gradients of
                                 // the weights
};

// Consecutive sources and the destinations of their edges.
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
