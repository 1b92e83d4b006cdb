// Sums over a graph without ghosts.
#pragma once

#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

// Returns the sums of the weights of the nodes, [constraints].
inline std::vector<int64_t> totals(const WeightedGraph& graph) {
  std::vector<int64_t> total(static_cast<size_t>(graph.constraints));
  for (int64_t node = 0; node < graph.nodes; ++node)
    for (int64_t k = 0; k < graph.constraints; ++k) total[k] += graph.weights_of(node)[k];
  return total;
}

// Returns what one unit of each weight counts in `Excess`: 1 over the limit, 0 if the limit is 0.
inline std::vector<double> units(const int64_t* limit, int64_t constraints) {
  std::vector<double> unit(static_cast<size_t>(constraints));
  for (int64_t k = 0; k < constraints; ++k) unit[k] = limit[k] > 0 ? 1 / static_cast<double>(limit[k]) : 0;
  return unit;
}

// Returns the weight of the edges between different parts. An edge counts once.
inline int64_t cut_of(const WeightedGraph& graph, const int32_t* part) {
  int64_t cut = 0;
  for (int64_t node = 0; node < graph.nodes; ++node)
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e)
      if (part[graph.indices[e]] != part[node]) cut += graph.weight_of(e);
  return cut / 2;
}

// The share of all weights that a node has, averaged over the constraints with any weight.
class ShareOfTotal {
 public:
  explicit ShareOfTotal(const std::vector<int64_t>& total) : unit_(total.size()) {
    double present = 0;
    for (const int64_t sum : total) present += sum > 0 ? 1 : 0;
    for (size_t k = 0; k < total.size(); ++k)
      if (total[k] > 0) unit_[k] = 1 / (present * static_cast<double>(total[k]));
  }

  double of(const int32_t* weight) const {
    double share = 0;
    for (size_t k = 0; k < unit_.size(); ++k) share += unit_[k] * weight[k];
    return share;
  }

 private:
  std::vector<double> unit_;
};

}  // namespace pyg_batchgnn
