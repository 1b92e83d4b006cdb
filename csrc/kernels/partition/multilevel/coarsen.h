// Coarsening: size-constrained label propagation (Meyerhenke, Sanders and Schulz 2014).
#pragma once

#include <cstdint>
#include <vector>

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

// Contraction: a graph whose nodes are the clusters of another.

// The own nodes by cluster.
struct Members {
  const int64_t* start;  // [clusters + 1]
  const int32_t* node;   // [nodes]; null if the nodes are in order of their clusters
};

struct ClusterEdge {
  int32_t cluster;
  int32_t neighbour;
  int32_t weight;
};

// Appends the edges between the clusters [begin, end) and other clusters, each once per cluster.
//   label: [nodes + ghosts], the cluster of each node in [0, labels).
void contract_clusters(const WeightedGraph& graph, const Members& members, const int32_t* label,
                       int64_t labels, int64_t begin, int64_t end, std::vector<ClusterEdge>& out);

// Returns the graph of clusters of a graph without ghosts. The numbers of the clusters are in [0,
// nodes); `label` is overwritten by their numbers in the new graph, in order of first appearance.
OwnedGraph contract(const WeightedGraph& graph, int32_t* label);

}  // namespace pyg_batchgnn
