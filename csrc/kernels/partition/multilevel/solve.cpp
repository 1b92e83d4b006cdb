#include "kernels/partition/multilevel/solve.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/partition/multilevel/coarsen.h"
#include "kernels/partition/multilevel/node_heap.h"
#include "kernels/partition/multilevel/refine.h"
#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kTries = 16;
constexpr int64_t kPasses = 6;

// What the two sides may weigh.
struct Sides {
  double fraction;             // the share of the first side
  std::vector<int64_t> limit;  // [2, constraints]
};

Sides sides_of(const std::vector<int64_t>& total, const int64_t* limit, int64_t parts) {
  const int64_t first = parts / 2;
  const double depth = std::ceil(std::log2(static_cast<double>(parts)));
  Sides sides{static_cast<double>(first) / static_cast<double>(parts), {}};
  for (const int64_t count : {first, parts - first}) {
    for (size_t k = 0; k < total.size(); ++k) {
      const auto mean = static_cast<double>(total[k]) / static_cast<double>(parts);
      const double slack = mean > 0 ? std::max(1.0, static_cast<double>(limit[k]) / mean) : 1.0;
      sides.limit.push_back(
          static_cast<int64_t>(static_cast<double>(count) * mean * std::pow(slack, 1 / depth) + 0.5));
    }
  }
  return sides;
}

// Grows the first side from a node chosen by the key: the node next that lowers the cut the most.
void grow(const WeightedGraph& graph, const Assignment& to, const std::vector<int64_t>& total,
          double fraction, uint64_t key) {
  NodeHeap heap(graph.nodes);
  std::vector<int64_t> gain(static_cast<size_t>(graph.nodes));
  std::vector<int32_t> order(static_cast<size_t>(graph.nodes));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return fold(key, static_cast<uint64_t>(a)) < fold(key, static_cast<uint64_t>(b));
  });
  for (int64_t node = 0; node < graph.nodes; ++node)
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) gain[node] -= graph.weight_of(e);
  const ShareOfTotal share(total);
  double grown = 0;
  for (size_t next = 0; grown < fraction;) {
    while (heap.empty() && next < order.size()) {
      const int32_t node = order[next++];
      if (to.part[node] == 1 && to.rooms.fits(graph.weights_of(node), 0)) heap.set(node, 0);
    }
    if (heap.empty()) return;
    const int32_t node = heap.pop();
    const int32_t* const weight = graph.weights_of(node);
    if (!to.rooms.fits(weight, 0)) continue;
    to.part[node] = 0;
    to.rooms.move(weight, 1, 0);
    grown += share.of(weight);
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
      const int32_t other = graph.indices[e];
      gain[other] += 2 * graph.weight_of(e);
      if (to.part[other] == 1)
        heap.set(other, priority_of(gain[other], fold(key, static_cast<uint64_t>(other))));
    }
  }
}

// Sets side [nodes] to the best of several tries.
void bisect(const WeightedGraph& graph, const Sides& sides, const std::vector<int64_t>& total, uint64_t key,
            std::vector<int32_t>& best) {
  const int64_t constraints = graph.constraints;
  const std::vector<double> unit = units(sides.limit.data(), constraints);
  std::vector<int32_t> side(static_cast<size_t>(graph.nodes));
  double least_excess = 0;
  int64_t least_cut = -1;
  for (int64_t attempt = 0; attempt < kTries; ++attempt) {
    const uint64_t own = fold(key, static_cast<uint64_t>(attempt));
    std::vector<int64_t> room = sides.limit;
    for (int64_t k = 0; k < constraints; ++k) room[constraints + k] -= total[k];
    std::fill(side.begin(), side.end(), 1);
    const Assignment to{2, side.data(), Rooms(constraints, room.data()), Excess{unit.data()}};
    grow(graph, to, total, sides.fraction, own);
    balance_parts(graph, to);
    refine_by_fm(graph, to, {own, kPasses, std::max<int64_t>(50, graph.nodes / 10)});
    const double excess = to.total_excess();
    const int64_t cut = cut_of(graph, side.data());
    if (least_cut >= 0 && (excess > least_excess || (excess == least_excess && cut >= least_cut))) continue;
    best = side;
    least_excess = excess;
    least_cut = cut;
  }
}

// Returns the graph of the nodes of one side; `number` is set to their numbers in it.
OwnedGraph graph_of_side(const WeightedGraph& graph, const std::vector<int32_t>& side, int32_t wanted,
                         std::vector<int32_t>& nodes) {
  std::vector<int32_t> number(static_cast<size_t>(graph.nodes), -1);
  nodes.clear();
  for (int64_t node = 0; node < graph.nodes; ++node) {
    if (side[node] != wanted) continue;
    number[node] = static_cast<int32_t>(nodes.size());
    nodes.push_back(static_cast<int32_t>(node));
  }
  OwnedGraph found;
  found.constraints = graph.constraints;
  for (const int32_t node : nodes) {
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
      if (number[graph.indices[e]] < 0) continue;
      found.indices.push_back(number[graph.indices[e]]);
      found.edge_weight.push_back(static_cast<int32_t>(graph.weight_of(e)));
    }
    found.indptr.push_back(static_cast<int64_t>(found.indices.size()));
    const int32_t* const weight = graph.weights_of(node);
    found.node_weight.insert(found.node_weight.end(), weight, weight + graph.constraints);
  }
  return found;
}

}  // namespace

void bisect_recursively(const WeightedGraph& graph, int64_t parts, const int64_t* limit, uint64_t key,
                        int32_t* part) {
  std::fill(part, part + graph.nodes, 0);
  if (parts == 1 || graph.nodes == 0) return;
  const std::vector<int64_t> total = totals(graph);
  std::vector<int32_t> side, nodes;
  bisect(graph, sides_of(total, limit, parts), total, key, side);
  for (const int32_t wanted : {0, 1}) {
    const OwnedGraph half = graph_of_side(graph, side, wanted, nodes);
    const int64_t count = wanted == 0 ? parts / 2 : parts - parts / 2, first = wanted == 0 ? 0 : parts / 2;
    std::vector<int32_t> found(nodes.size());
    bisect_recursively(half.view(), count, limit, fold(key, static_cast<uint64_t>(kTries + wanted)),
                       found.data());
    for (size_t at = 0; at < nodes.size(); ++at) part[nodes[at]] = static_cast<int32_t>(first + found[at]);
  }
}

namespace {

constexpr int64_t kNodesPerPart = 40;  // in the coarsest graph
constexpr int64_t kFewestNodes = 160;  // in the coarsest graph
// No cluster weighs more than a part's mean over this, times 1 and the number of constraints.
// Several constraints need finer clusters to be met.
constexpr int64_t kClustersPerPart = 8;
constexpr int64_t kRounds = 3;   // of clustering in a level
constexpr uint64_t kCycles = 2;  // of coarsening and refinement; all but the first improve a partition

// One step of coarsening.
struct Level {
  std::vector<int32_t> label;  // the coarse node of each node
  OwnedGraph coarse;
};

// Returns the values of clusters for their nodes.
std::vector<int32_t> of_nodes(const std::vector<int32_t>& label, const std::vector<int32_t>& value) {
  std::vector<int32_t> found(label.size());
  for (size_t node = 0; node < label.size(); ++node) found[node] = value[label[node]];
  return found;
}

// Returns the values of nodes, equal within each cluster, for the clusters.
std::vector<int32_t> of_clusters(const std::vector<int32_t>& label, int64_t clusters,
                                 const std::vector<int32_t>& value) {
  std::vector<int32_t> found(static_cast<size_t>(clusters));
  for (size_t node = 0; node < label.size(); ++node) found[label[node]] = value[node];
  return found;
}

// part: nodes of different parts stay apart; null if there are no parts.
std::vector<int32_t> cluster(const WeightedGraph& graph, int64_t parts, uint64_t key, const int32_t* part) {
  std::vector<int32_t> label(static_cast<size_t>(graph.nodes));
  std::iota(label.begin(), label.end(), 0);
  const std::vector<int64_t> total = totals(graph);
  std::vector<int64_t> room(static_cast<size_t>(graph.nodes * graph.constraints));
  const int64_t clusters = kClustersPerPart * (1 + graph.constraints) * parts;
  for (int64_t node = 0; node < graph.nodes; ++node)
    for (int64_t k = 0; k < graph.constraints; ++k)
      room[node * graph.constraints + k] =
          std::max<int64_t>(1, total[k] / clusters) - graph.weights_of(node)[k];
  const Rooms rooms(graph.constraints, room.data());
  for (int64_t round = 0; round < kRounds; ++round) {
    const Leftover leftover = round + 1 == kRounds ? Leftover::kTogether : Leftover::kAlone;
    const NodeWords words{fold(key, static_cast<uint64_t>(round)), 0};
    if (cluster_nodes(graph, graph.nodes, label.data(), rooms, words, leftover, part) == 0 && round > 0)
      break;
  }
  return label;
}

// part: [nodes], empty if there are no parts yet; becomes that of the coarsest graph.
std::vector<Level> coarsen(const WeightedGraph& graph, const Problem& problem, uint64_t key,
                           std::vector<int32_t>& part) {
  const int64_t enough = std::max(kFewestNodes, kNodesPerPart * problem.parts);
  std::vector<Level> levels;
  WeightedGraph finest = graph;
  while (finest.nodes > enough) {
    const int32_t* const apart = part.empty() ? nullptr : part.data();
    Level level{cluster(finest, problem.parts, fold(key, levels.size()), apart), {}};
    level.coarse = contract(finest, level.label.data());
    const int64_t nodes = level.coarse.view().nodes;
    if (20 * nodes > 19 * finest.nodes) break;
    if (!part.empty()) part = of_clusters(level.label, nodes, part);
    levels.push_back(std::move(level));
    finest = levels.back().coarse.view();
  }
  return levels;
}

std::vector<int64_t> rooms_of(const WeightedGraph& graph, const Problem& problem, const int32_t* part) {
  std::vector<int64_t> room;
  for (int64_t p = 0; p < problem.parts; ++p)
    room.insert(room.end(), problem.limit, problem.limit + graph.constraints);
  for (int64_t node = 0; node < graph.nodes; ++node)
    for (int64_t k = 0; k < graph.constraints; ++k)
      room[part[node] * graph.constraints + k] -= graph.weights_of(node)[k];
  return room;
}

// Coarsens, cuts the coarsest graph, and refines on the way back.
//   part: [nodes], the partition to improve, or empty; becomes the one found.
Solution run_cycle(const WeightedGraph& graph, const Problem& problem, uint64_t key,
                   std::vector<int32_t>& part) {
  const std::vector<Level> levels = coarsen(graph, problem, key, part);
  const std::vector<double> unit = units(problem.limit, graph.constraints);
  Solution solution{0, 0};
  for (size_t depth = levels.size() + 1; depth-- > 0;) {
    const WeightedGraph now = depth == 0 ? graph : levels[depth - 1].coarse.view();
    const uint64_t own = fold(key, ~static_cast<uint64_t>(depth));
    if (depth < levels.size()) {
      part = of_nodes(levels[depth].label, part);
    } else if (part.empty()) {
      part.resize(static_cast<size_t>(now.nodes));
      bisect_recursively(now, problem.parts, problem.limit, own, part.data());
    }
    std::vector<int64_t> room = rooms_of(now, problem, part.data());
    const Assignment to{problem.parts, part.data(), Rooms(graph.constraints, room.data()),
                        Excess{unit.data()}};
    improve(now, to, own);
    if (depth == 0) solution = {cut_of(graph, part.data()), to.total_excess()};
  }
  return solution;
}

}  // namespace

Solution solve(const WeightedGraph& graph, const Problem& problem, int32_t* part) {
  std::vector<int32_t> found;
  Solution solution = run_cycle(graph, problem, problem.key, found);
  for (uint64_t cycle = 1; cycle < kCycles; ++cycle)
    solution = run_cycle(graph, problem, fold(problem.key, ~cycle), found);
  std::copy(found.begin(), found.end(), part);
  return solution;
}

}  // namespace pyg_batchgnn
