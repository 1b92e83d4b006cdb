#include "kernels/partition/multilevel/cluster.h"

#include <vector>

namespace pyg_batchgnn {
namespace {

constexpr int32_t kNone = -1;

class Clusterer {
 public:
  Clusterer(const WeightedGraph& graph, int64_t labels, int32_t* label, const Rooms& rooms,
            const int32_t* part)
      : graph_(graph), label_(label), rooms_(rooms), part_(part), rating_(static_cast<size_t>(labels)) {}

  // Returns the cluster that the node should be in, and sets `alone` and `favourite`.
  int32_t choose(int64_t node, uint64_t word) {
    rate(node);
    const int32_t now = label_[node];
    const int32_t* const weight = graph_.weights_of(node);
    alone_ = rating_[now] == 0;
    favourite_ = kNone;
    int32_t best = now;
    int64_t most = rating_[now], highest = 0;
    uint64_t tie = mix(word ^ static_cast<uint64_t>(now));
    for (const int32_t label : touched_) {
      const int64_t rating = rating_[label];
      if (rating > highest) {
        highest = rating;
        favourite_ = label;
      }
      if (label == now || rating < most) continue;
      const uint64_t drawn = mix(word ^ static_cast<uint64_t>(label));
      if ((rating == most && drawn <= tie) || !rooms_.fits(weight, label)) continue;
      best = label;
      most = rating;
      tie = drawn;
    }
    for (const int32_t label : touched_) rating_[label] = 0;
    return best;
  }

  bool alone() const { return alone_; }
  int32_t favourite() const { return favourite_; }

 private:
  void rate(int64_t node) {
    touched_.clear();
    for (int64_t e = graph_.indptr[node]; e < graph_.indptr[node + 1]; ++e) {
      const int32_t other = graph_.indices[e], label = label_[other];
      if (part_ != nullptr && part_[other] != part_[node]) continue;
      if (rating_[label] == 0) touched_.push_back(label);
      rating_[label] += graph_.weight_of(e);
    }
  }

  const WeightedGraph& graph_;
  const int32_t* label_;
  const Rooms& rooms_;
  const int32_t* part_;
  std::vector<int64_t> rating_;
  std::vector<int32_t> touched_;
  bool alone_ = false;
  int32_t favourite_ = kNone;
};

}  // namespace

int64_t cluster_nodes(const WeightedGraph& graph, int64_t labels, int32_t* label, const Rooms& rooms,
                      const NodeWords& words, Leftover leftover, const int32_t* part) {
  Clusterer clusterer(graph, labels, label, rooms, part);
  // The cluster of the last node left over, by its best cluster; behind them that of nodes without
  // neighbours.
  std::vector<int32_t> left(leftover == Leftover::kTogether ? static_cast<size_t>(labels) + 1 : 0, kNone);
  int64_t moved = 0;
  for (int64_t node = 0; node < graph.nodes; ++node) {
    const int32_t now = label[node];
    const int32_t* const weight = graph.weights_of(node);
    int32_t best = clusterer.choose(node, words.of(node));
    if (best == now && clusterer.alone() && !left.empty()) {
      int32_t& other = left[clusterer.favourite() == kNone ? labels : clusterer.favourite()];
      const bool together = other != kNone && (part == nullptr || part[other] == part[node]);
      if (together && other != now && rooms.fits(weight, other))
        best = other;
      else
        other = now;
    }
    if (best == now) continue;
    rooms.move(weight, now, best);
    label[node] = best;
    ++moved;
  }
  return moved;
}

}  // namespace pyg_batchgnn
