// The parts of the nodes while they are refined.
#pragma once

#include "kernels/partition/multilevel/rooms.h"
#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

struct Assignment {
  int64_t parts;
  int32_t* part;  // [nodes + ghosts]; written for own nodes
  Rooms rooms;    // of the parts
  Excess excess;

  double total_excess() const {
    double total = 0;
    for (int64_t part = 0; part < parts; ++part) total += excess.of(rooms, part);
    return total;
  }
};

// The weight of the edges from one node to each part.
class Connections {
 public:
  explicit Connections(int64_t parts) : to_(static_cast<size_t>(parts)) {}

  void find(const WeightedGraph& graph, const int32_t* part, int64_t node) {
    std::fill(to_.begin(), to_.end(), 0);
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e)
      to_[part[graph.indices[e]]] += graph.weight_of(e);
  }

  int64_t to(int64_t part) const { return to_[part]; }

 private:
  std::vector<int64_t> to_;
};

}  // namespace pyg_batchgnn
