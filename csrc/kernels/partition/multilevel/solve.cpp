#include "kernels/partition/multilevel/solve.h"

#include <algorithm>
#include <numeric>

#include "kernels/partition/multilevel/bisect.h"
#include "kernels/partition/multilevel/cluster.h"
#include "kernels/partition/multilevel/contract.h"
#include "kernels/partition/multilevel/improve.h"
#include "kernels/partition/multilevel/totals.h"

namespace pyg_batchgnn {
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
