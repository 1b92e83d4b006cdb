#include "kernels/partition/multilevel/improve.h"

#include <algorithm>

#include "kernels/partition/multilevel/fm.h"
#include "kernels/partition/multilevel/refine.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kFmBytes = int64_t{128} << 20;  // beyond the bytes of the graph
constexpr int64_t kFmPasses = 3;
constexpr int64_t kGreedyRounds = 6;

}  // namespace

void improve(const WeightedGraph& graph, const Assignment& assignment, uint64_t key) {
  balance_parts(graph, assignment);
  if (fm_bytes(graph.nodes, assignment.parts) <= kFmBytes + 8 * graph.edges()) {
    refine_by_fm(graph, assignment, {key, kFmPasses, std::max<int64_t>(300, graph.nodes / 50)});
    return;
  }
  for (int64_t round = 0; round < kGreedyRounds; ++round)
    if (move_greedily(graph, assignment) == 0) return;
}

}  // namespace pyg_batchgnn
