// Coarsening: size-constrained label propagation (Meyerhenke, Sanders and Schulz 2014).
#pragma once

#include "kernels/partition/multilevel/rooms.h"
#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

// What happens to a node that can join none of its neighbours' clusters.
enum class Leftover {
  kAlone,     // it stays alone
  kTogether,  // it joins another such node with the same best cluster, or one without neighbours as
              // itself (two-hop matching)
};

// The random words of own nodes, which decide ties.
struct NodeWords {
  uint64_t key;
  int64_t first;  // the number of the first own node among the nodes of all processes

  uint64_t of(int64_t node) const { return fold(key, static_cast<uint64_t>(first + node)); }
};

// Moves each own node to the cluster that most of its edges lead to, by weight, among those
// with room. Ties are decided by hash.
//   label: [nodes + ghosts], the cluster of each node in [0, labels); written for own nodes.
//   rooms: of the clusters.
//   part: [nodes + ghosts]; nodes of different parts stay apart, and a cluster has the number of a
//     node of its part. Null if there are no parts.
// Returns the number of nodes that moved.
int64_t cluster_nodes(const WeightedGraph& graph, int64_t labels, int32_t* label, const Rooms& rooms,
                      const NodeWords& words, Leftover leftover, const int32_t* part = nullptr);

}  // namespace pyg_batchgnn
