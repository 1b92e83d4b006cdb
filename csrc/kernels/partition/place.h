// Building adjacency lists from edges that come a few at a time.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The lists of the nodes [first, first + nodes) while they grow.
template <class Index, class EdgeId>
struct GrowingLists {
  int64_t first;
  int64_t nodes;
  int64_t edges;     // places in all lists
  int64_t* cursor;   // [nodes] where the next edge of each list goes
  Index* indices;    // [edges]
  EdgeId* edge_ids;  // [edges]
};

// counts[v - first] += 1 for every value v. Returns false, having counted a part, where one is outside
// [first, first + nodes).
template <class Value>
bool count_values(const Value* values, int64_t count, int64_t first, int64_t nodes, int64_t* counts);

// Appends edges, each (destination, source, id), to their lists. Returns false, having placed a part, where a
// destination or a place is outside the lists.
template <class Word, class Index, class EdgeId>
bool place_edges(const Word* edges, int64_t count, const GrowingLists<Index, EdgeId>& lists);

}  // namespace pyg_batchgnn
