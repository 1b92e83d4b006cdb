#include "kernels/partition/multilevel/fm.h"

#include "kernels/partition/multilevel/node_heap.h"

namespace pyg_batchgnn {
namespace {

constexpr int32_t kNone = -1;
constexpr double kRelief = 1e-12;  // what rounding may make of no change of the excess

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

}  // namespace pyg_batchgnn
