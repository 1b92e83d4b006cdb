#include "kernels/partition/multilevel/contract.h"

#include "kernels/partition/multilevel/saturated.h"

namespace pyg_batchgnn {
namespace {

// Numbers the labels in order of first appearance. Returns how many there are.
int64_t renumber(int64_t nodes, int32_t* label) {
  std::vector<int32_t> number(static_cast<size_t>(nodes), -1);
  int32_t next = 0;
  for (int64_t node = 0; node < nodes; ++node) {
    int32_t& known = number[label[node]];
    if (known < 0) known = next++;
    label[node] = known;
  }
  return next;
}

}  // namespace

void contract_clusters(const WeightedGraph& graph, const Members& members, const int32_t* label,
                       int64_t labels, int64_t begin, int64_t end, std::vector<ClusterEdge>& out) {
  std::vector<int64_t> sum(static_cast<size_t>(labels));
  std::vector<int32_t> touched;
  for (int64_t cluster = begin; cluster < end; ++cluster) {
    touched.clear();
    for (int64_t m = members.start[cluster]; m < members.start[cluster + 1]; ++m) {
      const int64_t node = members.node == nullptr ? m : members.node[m];
      for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
        const int32_t other = label[graph.indices[e]];
        if (other == cluster) continue;
        if (sum[other] == 0) touched.push_back(other);
        sum[other] += graph.weight_of(e);
      }
    }
    for (const int32_t other : touched) {
      out.push_back({static_cast<int32_t>(cluster), other, saturated(sum[other])});
      sum[other] = 0;
    }
  }
}

OwnedGraph contract(const WeightedGraph& graph, int32_t* label) {
  const int64_t clusters = renumber(graph.nodes, label), constraints = graph.constraints;
  std::vector<int64_t> start(static_cast<size_t>(clusters) + 1);
  for (int64_t node = 0; node < graph.nodes; ++node) ++start[label[node] + 1];
  for (int64_t cluster = 0; cluster < clusters; ++cluster) start[cluster + 1] += start[cluster];
  std::vector<int64_t> next(start.begin(), start.end() - 1);
  std::vector<int32_t> member(static_cast<size_t>(graph.nodes));
  OwnedGraph coarse;
  coarse.constraints = constraints;
  coarse.node_weight.resize(static_cast<size_t>(clusters * constraints));
  for (int64_t node = 0; node < graph.nodes; ++node) {
    member[next[label[node]]++] = static_cast<int32_t>(node);
    for (int64_t k = 0; k < constraints; ++k)
      coarse.node_weight[label[node] * constraints + k] += graph.weights_of(node)[k];
  }
  std::vector<ClusterEdge> edges;
  contract_clusters(graph, {start.data(), member.data()}, label, clusters, 0, clusters, edges);
  coarse.indptr.assign(static_cast<size_t>(clusters) + 1, 0);
  coarse.indices.reserve(edges.size());
  coarse.edge_weight.reserve(edges.size());
  for (const ClusterEdge& edge : edges) {
    ++coarse.indptr[edge.cluster + 1];
    coarse.indices.push_back(edge.neighbour);
    coarse.edge_weight.push_back(edge.weight);
  }
  for (int64_t cluster = 0; cluster < clusters; ++cluster)
    coarse.indptr[cluster + 1] += coarse.indptr[cluster];
  return coarse;
}

}  // namespace pyg_batchgnn
