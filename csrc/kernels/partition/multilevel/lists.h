// Adjacency lists that arrive in pieces, and their merging.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Appends edges to their lists.
//   rows: [count, columns]: list, neighbour and, if there is a third column, weight.
//   first: the list of cursor[0].
//   cursor: [lists], the position of the next edge of each list; advanced.
//   weights: null if there is no third column.
// Returns false if an edge has no place; some edges may have been appended.
template <class Word, class Id>
bool append_neighbours(const Word* rows, int64_t count, int64_t columns, int64_t first, int64_t lists,
                       int64_t places, int64_t* cursor, Id* ids, int32_t* weights);

struct Merged {
  int64_t edges;    // distinct neighbours of all lists
  int32_t uniform;  // the weight of every merged edge, 0 if they differ
};

// Sorts every list by neighbour, and counts the distinct neighbours. An edge from a node to itself
// counts for nothing.
//   first: the node of list 0.
//   ids, weights: [indptr[lists]]; weights may be null, which means 1 each.
//   merged: [lists + 1], where the merged lists begin.
template <class Id>
Merged sort_lists(int64_t first, int64_t lists, const int64_t* indptr, Id* ids, int32_t* weights,
                  int64_t* merged);

// Writes the merged lists, with the sums of the weights; at most 2^31 - 1 each.
//   merged_weights: null if they are not wanted.
template <class Id>
void merge_lists(int64_t first, int64_t lists, const int64_t* indptr, const Id* ids, const int32_t* weights,
                 const int64_t* merged, Id* merged_ids, int32_t* merged_weights);

}  // namespace pyg_batchgnn
