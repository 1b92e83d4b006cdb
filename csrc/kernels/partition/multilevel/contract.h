// Contraction: a graph whose nodes are the clusters of another.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

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
