// The inner loops of graph attention. csrc/kernels/nn/attention.h gives the formulas. Arrays
// without a type are float32, or float64 for float64 rows.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Lists of rows have this many further entries, whose rows may be fetched and are not used.
constexpr int64_t kMostRowsAhead = 32;

// How coefficients are made (kernels/nn/attention.h).
enum class Scores : uint8_t { kLinear, kAdditive, kGiven, kMessages };

// Consecutive destinations and the rows that each sums over.
struct AttentionBlock {
  int64_t first, targets;
  const int64_t* begin;      // [targets + 1] into the lists below
  const char* const* rows;   // the row of each source
  const char* const* edges;  // the row of each edge; null without them
  const int32_t* place;      // the slot of each row, from the first one of the destination
  const uint8_t* keep;       // [rows, heads] 1 if dropout keeps a coefficient, else 0; or null
  const int64_t* slots;      // [targets + 1] the first slot of each destination
  const char* const* self;   // [targets] the own rows of the destinations, for a target weight
  void* scratch;             // attention_scratch(...) numbers
};

// Returns how many numbers of scratch memory a block with lists of at most `longest` entries takes.
int64_t attention_scratch(int64_t longest, int64_t heads, int64_t width, int64_t row_columns);

struct AttentionWeights {
  int64_t heads, columns, edge_columns;
  // The columns of a row, where the values of the first head begin, and how far a head's columns
  // are from those of the head before it. Without columns by head the latter are 0.
  int64_t row_columns, first_value, head_step;
  double slope, scale;  // of what dropout keeps
  const void* source;
  int64_t source_step;  // numbers from the weights of a destination to those of the next one, or 0
  const void* target;   // or null
  Decoding decoding{};  // of the columns of codes
  Scores scores = Scores::kLinear;
  // Of sums s: y with numbers from a row to the next, W, and rows of edges by slot.
  const void* target_rows = nullptr;
  int64_t target_step = 0;
  const void* edge_weight = nullptr;
  const void* edge_rows = nullptr;
  int64_t summed_edge_columns = 0;

  int64_t width() const { return columns + edge_columns; }
};

struct AttentionForward {
  AttentionWeights weights;
  const void* target_logits;  // or null
  const void* edge_logits;    // or null
  void* out;
  Element out_type;
  bool stream;  // writes past the caches; rows are whole cache lines and `out` begins on one
  void* coefficient;
  void* total;
};

struct AttentionBackward {
  AttentionWeights weights;
  const void* coefficient;
  const void* grad;
  Element grad_type;
  const void* grad_coefficient;  // or null
  const void* grad_total;        // or null
  void* target_logits;           // gradient
  void* edge_logits;             // gradient, or null
  void* edge;                    // gradient, or null
  // [slots, pair_step] alpha after dropout and the gradient of the logit, [heads] each, but of
  // messages, and the signs of sums; or null.
  void* pairs;
  int64_t pair_step;
  // Gradients, or with weights of the sources that are the same for all destinations the share of
  // the block in them.
  void* source_weight;
  void* target_weight;  // [heads, columns] the share of the block
  void* edge_weight;    // the share of the block; null without W
  void* target_rows;    // gradient; null without y
};

// Consecutive sources and the destinations of their edges. Lists have further entries as above.
struct AttentionSources {
  int64_t first, sources;
  const int64_t* begin;        // [sources + 1] into the lists below
  const char* const* grads;    // the destination's row of the gradient of z
  const char* const* weights;  // the destination's weights of sources; or null
  const char* const* pairs;    // as above
  void* scratch;               // attention_scratch(0, ...) numbers
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
  int64_t lanes;  // float32 numbers of a vector
};

const AttentionKernels& attention_kernels();

}  // namespace pyg_batchgnn
