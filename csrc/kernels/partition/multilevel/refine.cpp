#include "kernels/partition/multilevel/refine.h"

#include <algorithm>

#include "kernels/partition/multilevel/node_heap.h"

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

namespace {

struct Move {
  int32_t node;
  int32_t from;
};

class Fm {
 public:
  Fm(const WeightedGraph& graph, const Assignment& assignment, const FmRules& rules)
      : graph_(graph),
        to_(assignment),
        rules_(rules),
        edges_(static_cast<size_t>(graph.nodes * assignment.parts)),
        moved_(static_cast<size_t>(graph.nodes)),
        heap_(graph.nodes) {
    for (int64_t node = 0; node < graph.nodes; ++node)
      for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e)
        row(node)[to_.part[graph.indices[e]]] += static_cast<int32_t>(graph.weight_of(e));
  }

  // Returns whether the pass has lowered the excess or the cut.
  bool pass() {
    for (int64_t node = 0; node < graph_.nodes; ++node) offer(static_cast<int32_t>(node));
    double excess = 0, best_excess = 0;
    int64_t cut = 0, best_cut = 0;
    size_t best = 0;
    while (!heap_.empty() && static_cast<int64_t>(moves_.size() - best) <= rules_.patience) {
      const int32_t node = heap_.pop();
      const int32_t target = best_target(node);
      if (target == kNone) continue;
      const int32_t from = to_.part[node];
      const int64_t gain = row(node)[target] - row(node)[from];
      const int64_t priority = priority_of(gain, word(node));
      if (!heap_.empty() && priority < heap_.top_priority()) {
        heap_.set(node, priority);
        continue;
      }
      excess += to_.excess.growth(to_.rooms, from, graph_.weights_of(node), -1);
      cut -= gain;
      moved_[node] = 1;
      moves_.push_back({node, from});
      move(node, from, target);
      const bool relieved = excess < best_excess - kRelief;
      if (relieved || (excess <= best_excess + kRelief && cut < best_cut)) {
        best = moves_.size();
        best_cut = cut;
        best_excess = excess;
      }
    }
    heap_.clear();
    const bool better = best > 0;
    undo(best);
    return better;
  }

 private:
  int32_t* row(int64_t node) { return edges_.data() + node * to_.parts; }
  uint64_t word(int64_t node) const { return fold(rules_.key, static_cast<uint64_t>(node)); }

  // Puts the node on the heap with its largest gain, if it has edges to other parts.
  void offer(int32_t node) {
    const int32_t* const edges = row(node);
    const int32_t now = to_.part[node];
    int32_t most = 0;
    for (int64_t part = 0; part < to_.parts; ++part)
      if (part != now && edges[part] > most) most = edges[part];
    if (most > 0)
      heap_.set(node, priority_of(int64_t{most} - edges[now], word(node)));
    else
      heap_.remove(node);
  }

  // Returns the part with room that most edges lead to.
  int32_t best_target(int32_t node) {
    const int32_t* const edges = row(node);
    const int32_t now = to_.part[node];
    const int32_t* const weight = graph_.weights_of(node);
    int32_t best = kNone;
    for (int64_t part = 0; part < to_.parts; ++part) {
      if (part == now || edges[part] == 0 || (best != kNone && edges[part] <= edges[best])) continue;
      if (to_.rooms.fits(weight, part)) best = static_cast<int32_t>(part);
    }
    return best;
  }

  void move(int32_t node, int32_t from, int32_t target) {
    shift(node, from, target);
    for (int64_t e = graph_.indptr[node]; e < graph_.indptr[node + 1]; ++e)
      if (const int32_t other = graph_.indices[e]; other < graph_.nodes && !moved_[other]) offer(other);
  }

  void shift(int32_t node, int32_t from, int32_t target) {
    to_.part[node] = target;
    to_.rooms.move(graph_.weights_of(node), from, target);
    for (int64_t e = graph_.indptr[node]; e < graph_.indptr[node + 1]; ++e) {
      const int32_t other = graph_.indices[e];
      if (other >= graph_.nodes) continue;
      int32_t* const edges = row(other);
      const auto weight = static_cast<int32_t>(graph_.weight_of(e));
      edges[from] -= weight;
      edges[target] += weight;
    }
  }

  // Undoes the moves from a number on, and forgets all.
  void undo(size_t first) {
    for (const Move& move : moves_) moved_[move.node] = 0;
    while (moves_.size() > first) {
      const Move move = moves_.back();
      moves_.pop_back();
      shift(move.node, to_.part[move.node], move.from);
    }
    moves_.clear();
  }

  const WeightedGraph& graph_;
  const Assignment& to_;
  const FmRules& rules_;
  std::vector<int32_t> edges_;  // [nodes, parts] the weight of each node's edges to each part
  std::vector<uint8_t> moved_;
  std::vector<Move> moves_;
  NodeHeap heap_;
};

}  // namespace

int64_t fm_bytes(int64_t nodes, int64_t parts) { return nodes * (4 * parts + 32); }

void refine_by_fm(const WeightedGraph& graph, const Assignment& assignment, const FmRules& rules) {
  Fm fm(graph, assignment, rules);
  for (int64_t pass = 0; pass < rules.passes; ++pass)
    if (!fm.pass()) return;
}

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
