// Adjacency lists that are built from edges that arrive in pieces, and their merging.
#pragma once

#include <cstdint>
#include <vector>

namespace pyg_batchgnn {

// Sorts rows by owner.

// Finds the group of each value. Group g holds the values in [bounds[g], bounds[g + 1]). Smaller
// values belong to the first group, larger ones to the last.
template <class Value>
void find_groups(const Value* values, int64_t count, const int64_t* bounds, int64_t groups, int32_t* group);

// Sets order to the rows by group, in a stable order, and counts[g] to the rows of group g. Returns
// true if the rows were in that order; then `order` is not written.
template <class Group>
bool group_rows(const Group* group, int64_t count, int64_t groups, int32_t* order, int64_t* counts);

// The lists of the nodes [first, first + nodes) while they grow.
template <class Id, class Value>
struct GrowingLists {
  int64_t first;
  int64_t nodes;
  int64_t edges;    // entries of all lists
  int64_t* cursor;  // [nodes] the position of the next edge of each list
  Id* ids;          // [edges] neighbours
  Value* values;    // [edges] edge ids or weights; may be null
};

// Adds 1 to counts[v - first] for every value v. Returns false if one is outside [first, first +
// nodes); some may have been counted.
template <class Value>
bool count_values(const Value* values, int64_t count, int64_t first, int64_t nodes, int64_t* counts);

// Appends edges to their lists. rows: [count, columns] node, neighbour and, if the lists have
// values, value. Returns false if an edge has no place; some edges may have been appended.
template <class Word, class Id, class Value>
bool append_edges(const Word* rows, int64_t count, int64_t columns, const GrowingLists<Id, Value>& lists);

struct Merged {
  int64_t edges;    // distinct neighbours of all lists
  int32_t uniform;  // the weight of every merged edge, 0 if they differ
};

// Sorts every list by neighbour, and counts the distinct neighbours other than the node itself.
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

// Numbers the neighbours of a process's own nodes: own nodes first, then ghosts.

// Returns the ghosts: the distinct ids outside [first, first + nodes), ascending. It takes one bit
// for each of the `total` nodes of all processes.
//   local: [count], is set to id - first for own nodes, and to nodes + the number of the ghost for
//     others. It may be the array of the ids itself.
template <class Id>
std::vector<Id> number_ghosts(const Id* ids, int64_t count, int64_t first, int64_t nodes, int64_t total,
                              int32_t* local);

}  // namespace pyg_batchgnn
