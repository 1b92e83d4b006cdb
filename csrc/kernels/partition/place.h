// Builds adjacency lists from edges that arrive in pieces.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The lists of the nodes [first, first + nodes) while they grow.
template <class Index, class EdgeId>
struct GrowingLists {
  int64_t first;
  int64_t nodes;
  int64_t edges;     // entries of all lists
  int64_t* cursor;   // [nodes] the position of the next edge of each list
  Index* indices;    // [edges]
  EdgeId* edge_ids;  // [edges]
};

// Adds 1 to counts[v - first] for every value v. Returns false if one is outside [first, first +
// nodes); some may have been counted.
template <class Value>
bool count_values(const Value* values, int64_t count, int64_t first, int64_t nodes, int64_t* counts);

// Appends edges, each (destination, source, id), to their lists. Returns false if a destination or
// a position is outside the lists; some edges may have been placed.
template <class Word, class Index, class EdgeId>
bool place_edges(const Word* edges, int64_t count, const GrowingLists<Index, EdgeId>& lists);

}  // namespace pyg_batchgnn
