// Graph attention (Velickovic et al. 2018) over raw inputs: logits, softmax over each destination's edges,
// and sums of the sources' rows, one for each head. The product with each head's weight comes after.
//
// With w_s[h] = W_h^T a_s[h] and w_t[h] = W_h^T a_t[h], edge j -> i of head h has the logit
//   l = leaky_relu(w_s[h] . x_j + w_t[h] . x_i + t[i, h] + e[edge, h]),
// alpha is its softmax over i's edges, and z[i, h] = sum alpha x_j; the layer's output is W_h z[i, h].
//
// "Slots": arrays over edges hold each destination's edges in order and, where loops are added, its loop
// after them. Destination i's begin at indptr[i] + min(i, loops).
//
// The same bits on any number of threads: sums over destinations are taken in blocks that depend on the graph
// alone, and the blocks' sums are added in order.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Edges by destination. With loops >= 0 edges from a destination to itself are left out, and the first
// `loops` destinations get one each; with loops < 0 edges are taken as they are.
struct AttentionEdges {
  const int64_t* indptr;  // [targets + 1]
  Integers indices;
  int64_t targets, loops;
};

// Source i is row[i] of the table, or i where there is no `row`. Destination i is the same node as source i.
struct AttentionRows {
  Matrix table;
  Integers row;
  int64_t columns;
};

// Of coefficients: destination i as `node[i]`, or i where null, column = position in the list * heads + head.
struct AttentionDropout {
  double drop;
  uint64_t key;
  const int64_t* node;
};

struct AttentionModel {
  int64_t heads;
  double slope;
  // [heads, columns]; w_t may be null. Like all that has no type given: float32, or float64 for float64 rows.
  const void* source_weight;
  const void* target_weight;
};

struct AttentionInput {
  AttentionEdges edges;
  AttentionRows rows;
  AttentionDropout dropout;
  AttentionModel model;
};

// Where edges go: `edge[ptr[j]]` to `edge[ptr[j + 1]]` leave source j, for `targets`.
struct AttentionTranspose {
  const int64_t* ptr;  // [sources + 1]
  Integers targets, edge;
  int64_t sources;
};

int64_t attention_slots(const AttentionEdges& edges);

struct AttentionResult {
  void* out;  // [targets, heads, columns]
  Element out_type;
  // [slots, heads]: the softmax before dropout; negative where the leaky ReLU's argument was not positive.
  void* coefficient;
};

// target_logits t [targets, heads] and edge_logits e [slots, heads] may be null.
void attention_forward(const AttentionInput& input, const void* target_logits, const void* edge_logits,
                       const AttentionResult& result, int64_t threads);

struct AttentionUpstream {
  const void* grad;  // of z, [targets, heads, columns]
  Element type;
  const void* coefficient;       // as the forward pass left it
  const void* grad_coefficient;  // [slots, heads], or null
};

struct AttentionGrads {
  void* source_weight;  // [heads, columns]
  void* target_weight;  // [heads, columns]; zero where there is no w_t
  void* target_logits;  // [targets, heads]
  void* edge_logits;    // [slots, heads], or null where not wanted
  void* x;              // [sources, columns] of the rows' type, or null
};

// `transpose` is read only where grads.x is wanted.
void attention_backward(const AttentionInput& input, const AttentionUpstream& upstream,
                        const AttentionTranspose& transpose, const AttentionGrads& grads, int64_t threads);

// keep [slots, heads]: 0 where dropped, else 1.
void attention_keep(const AttentionEdges& edges, const AttentionDropout& dropout, int64_t heads,
                    uint8_t* keep);

}  // namespace pyg_batchgnn
