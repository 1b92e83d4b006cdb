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

// Sums the edges from one cluster to each other one.
class Neighbours {
 public:
  // label: [nodes + ghosts], in [0, labels).
  Neighbours(const WeightedGraph& graph, const Members& members, const int32_t* label, int64_t labels)
      : graph_(graph), members_(members), label_(label), sum_(static_cast<size_t>(labels)) {}

  // Calls found(other, weight) for every other cluster that edges of this one lead to.
  template <class Found>
  void each(int64_t cluster, const Found& found) {
    touched_.clear();
    for (int64_t m = members_.start[cluster]; m < members_.start[cluster + 1]; ++m) {
      const int64_t node = members_.node == nullptr ? m : members_.node[m];
      for (int64_t e = graph_.indptr[node]; e < graph_.indptr[node + 1]; ++e) {
        const int32_t other = label_[graph_.indices[e]];
        if (other == cluster) continue;
        if (sum_[other] == 0) touched_.push_back(other);
        sum_[other] += graph_.weight_of(e);
      }
    }
    for (const int32_t other : touched_) {
      found(other, saturated(sum_[other]));
      sum_[other] = 0;
    }
  }

 private:
  const WeightedGraph& graph_;
  const Members members_;
  const int32_t* label_;
  std::vector<int64_t> sum_;
  std::vector<int32_t> touched_;
};

}  // namespace

void contract_clusters(const WeightedGraph& graph, const Members& members, const int32_t* label,
                       int64_t labels, int64_t begin, int64_t end, std::vector<ClusterEdge>& out) {
  Neighbours neighbours(graph, members, label, labels);
  for (int64_t cluster = begin; cluster < end; ++cluster)
    neighbours.each(cluster, [&](int32_t other, int32_t weight) {
      out.push_back({static_cast<int32_t>(cluster), other, weight});
    });
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
  // The pages that are not written to cost nothing, and growing would take twice the memory.
  coarse.indices.reserve(static_cast<size_t>(graph.edges()));
  coarse.edge_weight.reserve(static_cast<size_t>(graph.edges()));
  coarse.indptr.resize(static_cast<size_t>(clusters) + 1);
  Neighbours neighbours(graph, {start.data(), member.data()}, label, clusters);
  for (int64_t cluster = 0; cluster < clusters; ++cluster) {
    neighbours.each(cluster, [&](int32_t other, int32_t weight) {
      coarse.indices.push_back(other);
      coarse.edge_weight.push_back(weight);
    });
    coarse.indptr[cluster + 1] = static_cast<int64_t>(coarse.indices.size());
  }
  return coarse;
}

}  // namespace pyg_batchgnn
