#include "kernels/partition/multilevel/refine.h"

#include <algorithm>

namespace pyg_batchgnn {
namespace {

constexpr int32_t kNone = -1;
constexpr int kBalanceRounds = 8;
constexpr double kRelief = 1e-12;  // what rounding may make of no change of the excess

// A node that may leave a part, and what it costs to relieve the part by it.
struct Candidate {
  double cost;
  int32_t node;

  bool operator<(const Candidate& other) const {
    return cost != other.cost ? cost < other.cost : node < other.node;
  }
};

struct Relief {
  int32_t part;  // kNone if there is no move that lowers the excess
  double cost;   // of the cut for each unit of excess
};

Relief find_relief(const WeightedGraph& graph, const Assignment& assignment, Connections& edges,
                   int64_t node) {
  const int32_t* const weight = graph.weights_of(node);
  const int64_t now = assignment.part[node];
  const double left = assignment.excess.growth(assignment.rooms, now, weight, -1);
  Relief best{kNone, 0};
  if (left >= -kRelief) return best;
  edges.find(graph, assignment.part, node);
  for (int64_t part = 0; part < assignment.parts; ++part) {
    if (part == now) continue;
    const double change = left + assignment.excess.growth(assignment.rooms, part, weight, 1);
    if (change >= -kRelief) continue;
    const auto loss = static_cast<double>(edges.to(now) - edges.to(part));
    const double cost = loss > 0 ? loss / -change : loss * -change;
    if (best.part == kNone || cost < best.cost) best = {static_cast<int32_t>(part), cost};
  }
  return best;
}

}  // namespace

int64_t move_greedily(const WeightedGraph& graph, const Assignment& assignment) {
  Connections edges(assignment.parts);
  int64_t gained = 0;
  for (int64_t node = 0; node < graph.nodes; ++node) {
    const int32_t now = assignment.part[node];
    const int32_t* const weight = graph.weights_of(node);
    edges.find(graph, assignment.part, node);
    int32_t best = now;
    for (int64_t part = 0; part < assignment.parts; ++part)
      if (edges.to(part) > edges.to(best) && assignment.rooms.fits(weight, part))
        best = static_cast<int32_t>(part);
    if (best == now) continue;
    gained += edges.to(best) - edges.to(now);
    assignment.rooms.move(weight, now, best);
    assignment.part[node] = best;
  }
  return gained;
}

void balance_parts(const WeightedGraph& graph, const Assignment& assignment) {
  Connections edges(assignment.parts);
  std::vector<Candidate> candidates;
  for (int round = 0; round < kBalanceRounds && assignment.total_excess() > 0; ++round) {
    candidates.clear();
    for (int64_t node = 0; node < graph.nodes; ++node) {
      if (assignment.excess.of(assignment.rooms, assignment.part[node]) <= 0) continue;
      const Relief relief = find_relief(graph, assignment, edges, node);
      if (relief.part != kNone) candidates.push_back({relief.cost, static_cast<int32_t>(node)});
    }
    std::sort(candidates.begin(), candidates.end());
    bool moved = false;
    for (const Candidate& candidate : candidates) {
      const int64_t node = candidate.node, now = assignment.part[node];
      if (assignment.excess.of(assignment.rooms, now) <= 0) continue;
      const Relief relief = find_relief(graph, assignment, edges, node);
      if (relief.part == kNone) continue;
      assignment.rooms.move(graph.weights_of(node), now, relief.part);
      assignment.part[node] = relief.part;
      moved = true;
    }
    if (!moved) return;
  }
}

}  // namespace pyg_batchgnn
