// The first nodes around each seed of a disjoint minibatch, breadth first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// The sampled edges of a relation by target: row t has edges indptr[t] to indptr[t + 1] - 1.
struct TokenEdges {
  int64_t relation, source;  // the numbers of the relation and of its source type
  int64_t rows;              // targets beyond these have no edges
  const int64_t* indptr;
  Integers indices;
};

// [6, seeds, count], -1 behind the tokens of a seed: the type and the row of a node, its hop, the
// relation and the edge by which it was reached, and the token that it was reached from.
struct TokenTable {
  int64_t seeds, count;
  int64_t* values;

  int64_t& at(int64_t column, int64_t token) const { return values[column * seeds * count + token]; }
};

// Fills the tokens of each seed. num_nodes: by type. into: by type, the relations that lead to it.
// A node belongs to one seed, and is one token.
inline void fill_tokens(const int64_t* seed_type, const int64_t* seed_row,
                        const std::vector<int64_t>& num_nodes,
                        const std::vector<std::vector<TokenEdges>>& into, const TokenTable& out) {
  std::vector<std::vector<uint8_t>> seen;
  for (const int64_t nodes : num_nodes) seen.emplace_back(static_cast<size_t>(nodes));
  for (int64_t seed = 0; seed < out.seeds; ++seed) {
    const int64_t first = seed * out.count, end = first + out.count;
    int64_t used = first;
    const auto put = [&](int64_t type, int64_t row, int64_t hop, int64_t relation, int64_t edge,
                         int64_t from) {
      if (std::exchange(seen[static_cast<size_t>(type)][static_cast<size_t>(row)], uint8_t{1}) != 0) return;
      int64_t column = 0;
      for (const int64_t value : {type, row, hop, relation, edge, from}) out.at(column++, used) = value;
      ++used;
    };
    put(seed_type[seed], seed_row[seed], 0, -1, -1, -1);
    for (int64_t at = first; at < used; ++at) {
      const int64_t row = out.at(1, at);
      for (const TokenEdges& one : into[static_cast<size_t>(out.at(0, at))]) {
        if (row >= one.rows) continue;
        for (int64_t edge = one.indptr[row]; edge < one.indptr[row + 1] && used < end; ++edge) {
          put(one.source, one.indices[edge], out.at(2, at) + 1, one.relation, edge, at - first);
        }
      }
    }
    for (int64_t column = 0; column < 6; ++column) {
      std::fill(&out.at(column, used), &out.at(column, end), int64_t{-1});
    }
  }
}

}  // namespace pyg_batchgnn
