// An undirected graph with weights, as the multilevel partitioner sees it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/random.h"

namespace pyg_batchgnn {

// The neighbours of a process's own nodes. Ghosts are nodes of other processes; they follow the own
// nodes in the numbering and have no lists.
struct WeightedGraph {
  int64_t nodes;
  int64_t ghosts;
  int64_t constraints;         // the weights of a node
  const int64_t* indptr;       // [nodes + 1]
  const int32_t* indices;      // [edges] own nodes and ghosts; every edge is in the lists of both ends
  const int32_t* edge_weight;  // [edges], positive; null if every edge weighs 1
  const int32_t* node_weight;  // [nodes, constraints], not negative

  int64_t edges() const { return indptr[nodes]; }
  int64_t weight_of(int64_t edge) const { return edge_weight == nullptr ? 1 : edge_weight[edge]; }
  const int32_t* weights_of(int64_t node) const { return node_weight + node * constraints; }
};

// A graph that owns its arrays. It has no ghosts.
struct OwnedGraph {
  int64_t constraints = 0;
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices, edge_weight, node_weight;

  WeightedGraph view() const {
    return {static_cast<int64_t>(indptr.size()) - 1,
            0,
            constraints,
            indptr.data(),
            indices.data(),
            edge_weight.data(),
            node_weight.data()};
  }
};

// Sums of weights of edges.

// Returns the sum, or the largest weight that an edge can have.
inline int32_t saturated(int64_t sum) {
  return static_cast<int32_t>(std::min<int64_t>(sum, std::numeric_limits<int32_t>::max()));
}

// Sums over a graph without ghosts.

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

// The room that is left in each part, or in each cluster, by constraint.

// Room is negative where a limit is exceeded.
class Rooms {
 public:
  // room: [groups, constraints].
  Rooms(int64_t constraints, int64_t* room) : constraints_(constraints), room_(room) {}

  int64_t constraints() const { return constraints_; }
  int64_t* of(int64_t group) const { return room_ + group * constraints_; }

  // Returns whether a node of these weights may join the group. Only limits that it adds to count.
  bool fits(const int32_t* weight, int64_t group) const {
    const int64_t* const room = of(group);
    for (int64_t k = 0; k < constraints_; ++k)
      if (weight[k] > 0 && room[k] < weight[k]) return false;
    return true;
  }

  void move(const int32_t* weight, int64_t from, int64_t to) const {
    int64_t* const left = of(from);
    int64_t* const joined = of(to);
    for (int64_t k = 0; k < constraints_; ++k) {
      left[k] += weight[k];
      joined[k] -= weight[k];
    }
  }

 private:
  int64_t constraints_;
  int64_t* room_;
};

// The limits by which excess is measured.
//   share: [constraints], what one unit of each weight counts: 1 over the limit, 0 without limit.
struct Excess {
  const double* share;

  // Returns by how much a group exceeds its limits.
  double of(const Rooms& rooms, int64_t group) const {
    double excess = 0;
    const int64_t* const room = rooms.of(group);
    for (int64_t k = 0; k < rooms.constraints(); ++k)
      if (room[k] < 0) excess -= static_cast<double>(room[k]) * share[k];
    return excess;
  }

  // Returns by how much the excess of the group grows with `sign` nodes of these weights.
  double growth(const Rooms& rooms, int64_t group, const int32_t* weight, int64_t sign) const {
    double growth = 0;
    const int64_t* const room = rooms.of(group);
    for (int64_t k = 0; k < rooms.constraints(); ++k) {
      const int64_t then = room[k] - sign * weight[k];
      growth += static_cast<double>(std::min<int64_t>(room[k], 0) - std::min<int64_t>(then, 0)) * share[k];
    }
    return growth;
  }
};

// The parts of the nodes while they are refined.

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
