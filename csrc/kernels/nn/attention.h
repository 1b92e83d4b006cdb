// Graph attention (Velickovic et al. 2018) over raw inputs: logits, softmax over each destination's
// edges, and one sum of source rows per head. The product with the weight of each head follows.
//
// With w_s[h] = W_h^T a_s[h] and w_t[h] = W_h^T a_t[h], edge j -> i of head h has the logit l =
// leaky_relu(w_s[h] . x_j + w_t[h] . x_i + t[i, h] + e[edge, h]), alpha is its softmax over i's
// edges, and z[i, h] = sum alpha x_j; the layer's output is W_h z[i, h].
//
// In dot-product attention (Vaswani et al. 2017, Shi et al. 2021) a source has another weight for
// every destination: w_s[i, h] = W_k^T q_i.
//
// Heads may have columns of their own. Then x_j has the keys of all heads and behind them their
// values, the logit is w_s[i, h] . key[j, h], and z[i, h] sums values.
//
// Other sums over edges are computed by the same passes (`Scores`). With s = x_j + y_i + W^T f,
// where f is the row of the edge (s = x_j + y_i + f without a weight W), and a leaky ReLU:
// - kAdditive (Brody et al. 2022): the logit is a[h] . leaky_relu(s[h]), where head h has its
//   columns of s, and z[i, h] sums those of x_j.
// - kGiven: alpha is e[edge, h]. There is no softmax.
// - kMessages (Hu et al. 2020): z[i] is the sum of leaky_relu(s). There are no coefficients.
//
// If x are codes, the weights and t are for codes, as are their gradients; z is decoded.
//
// Edges may have rows of their own. Then x_j above is the row of source j with the row of the edge
// behind it, and w_s and z have the columns of both; w_t and x_i have those of the table.
//
// Arrays over edges have slots: the edges of each destination in order and, if loops are added, its
// loop after them. The slots of destination i begin at indptr[i] + min(i, loops).
//
// The result has the same bits on any number of threads. Sums over destinations are taken in blocks
// that depend only on the graph, and the sums of blocks are added in order.
#pragma once

#include <cstdint>

#include "kernels/operand.h"
#include "kernels/simd/attention.h"

namespace pyg_batchgnn {

// Edges by destination. With loops >= 0 edges from a destination to itself are left out, and the
// first `loops` destinations get one each; with loops < 0 edges are taken as they are.
struct AttentionEdges {
  const int64_t* indptr;  // [targets + 1]
  Integers indices;
  int64_t targets, loops;
};

// Source i is row[i] of the table, or row i without `row`. Destination i is the same node.
struct AttentionRows {
  Matrix table;
  Integers row;
  int64_t columns;   // that a head reads
  bool by_head;      // whether the table has the columns [2, heads, columns]: keys and values
  const void* edge;  // [slots, edge_columns], or null
  int64_t edge_columns;
};

// Dropout of coefficients. Destination i has the id node[i], or i if null. The column is position
// in the list * heads + head.
struct AttentionDropout {
  double drop;
  uint64_t key;
  const int64_t* node;
};

// Arrays without a type are float32, or float64 for float64 rows.
struct AttentionModel {
  int64_t heads;
  double slope;
  const void* source_weight;  // [heads, width], or [targets, heads, width]
  bool by_target;             // the latter
  const void* target_weight;  // [heads, columns], or null
  Scores scores = Scores::kLinear;
  // For kAdditive and kMessages.
  const void* target_rows = nullptr;  // y [targets, heads * columns], or null
  int64_t target_step = 0;            // numbers from a row of y to the next, or 0
  const void* edge_weight = nullptr;  // W [edge columns, heads * columns], or null
};

struct AttentionInput {
  AttentionEdges edges;
  AttentionRows rows;
  AttentionDropout dropout;
  AttentionModel model;

  bool has_softmax() const { return model.scores < Scores::kGiven; }
  bool is_summed() const { return model.scores == Scores::kAdditive || model.scores == Scores::kMessages; }
  // Columns of edges that stand behind those of their sources.
  int64_t edge_columns() const { return is_summed() ? 0 : rows.edge_columns; }
  int64_t width() const { return rows.columns + edge_columns(); }  // of a head of z
};

// The edges by source: edge[ptr[j]] to edge[ptr[j + 1]] go from source j to `targets`.
struct AttentionTranspose {
  const int64_t* ptr;  // [sources + 1]
  Integers targets, edge;
  int64_t sources;
};

int64_t attention_slots(const AttentionEdges& edges);

struct AttentionResult {
  void* out;  // [targets, heads, width]
  Element out_type;
  // [slots, heads], the softmax before dropout, negative where the leaky ReLU has its slope. It and
  // the totals are written only where there is one.
  void* coefficient;
  void* total;  // [targets, heads], the sums after dropout: 1 without it, 0 without edges
};

// target_logits t [targets, heads] and edge_logits e [slots, heads] may be null.
void attention_forward(const AttentionInput& input, const void* target_logits, const void* edge_logits,
                       const AttentionResult& result, int64_t threads);

struct AttentionUpstream {
  const void* grad;  // of z, [targets, heads, width]
  Element type;
  const void* coefficient;       // from the forward pass, or those that were given
  const void* grad_coefficient;  // [slots, heads], or null
  const void* grad_total;        // [targets, heads], or null
};

struct AttentionGrads {
  void* source_weight;  // of the shape of w_s
  void* target_weight;  // [heads, columns]; zero without w_t
  void* target_logits;  // [targets, heads]
  void* edge_logits;    // [slots, heads], or null if not wanted
  void* edge;           // [slots, edge_columns], or null if not wanted
  void* x;              // [sources, columns] of the type of the rows, or null
  void* target_rows;    // [targets, heads * columns]; null without y
  void* edge_weight;    // as W; null without
};

// `transpose` is read only if grads.x is wanted.
void attention_backward(const AttentionInput& input, const AttentionUpstream& upstream,
                        const AttentionTranspose& transpose, const AttentionGrads& grads, int64_t threads);

// Sets keep [slots, heads] to 0 where a coefficient is dropped, else to 1.
void attention_keep(const AttentionEdges& edges, const AttentionDropout& dropout, int64_t heads,
                    uint8_t* keep);

}  // namespace pyg_batchgnn
