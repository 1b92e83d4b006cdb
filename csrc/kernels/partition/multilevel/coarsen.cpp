#include "kernels/partition/multilevel/coarsen.h"

#include <vector>

#include "kernels/counting_sort.h"
#include "kernels/partition/multilevel/weighted_graph.h"

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
  // The cluster of the last node left over, by its best cluster; last, of those without neighbours.
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

namespace {

// Numbers the labels in order of first appearance. Returns how many there are.
int64_t renumber(int64_t nodes, int32_t* label) {
  std::vector<int32_t> number(static_cast<size_t>(nodes), -1);
  int32_t next = 0;
  for (int64_t node = 0; node < nodes; ++node) {
    int32_t& known = number[label[node]];
    if (known < 0) known = next++;
    label[node] = known;
  }
  return next;
}

// Sums the edges from one cluster to each other one.
class Neighbours {
 public:
  // label: [nodes + ghosts], in [0, labels).
  Neighbours(const WeightedGraph& graph, const Members& members, const int32_t* label, int64_t labels)
      : graph_(graph), members_(members), label_(label), sum_(static_cast<size_t>(labels)) {}

  // Calls found(other, weight) for every other cluster that edges of this one lead to.
  template <class Found>
  void each(int64_t cluster, const Found& found) {
    touched_.clear();
    for (int64_t m = members_.start[cluster]; m < members_.start[cluster + 1]; ++m) {
      const int64_t node = members_.node == nullptr ? m : members_.node[m];
      for (int64_t e = graph_.indptr[node]; e < graph_.indptr[node + 1]; ++e) {
        const int32_t other = label_[graph_.indices[e]];
        if (other == cluster) continue;
        if (sum_[other] == 0) touched_.push_back(other);
        sum_[other] += graph_.weight_of(e);
      }
    }
    for (const int32_t other : touched_) {
      found(other, saturated(sum_[other]));
      sum_[other] = 0;
    }
  }

 private:
  const WeightedGraph& graph_;
  const Members members_;
  const int32_t* label_;
  std::vector<int64_t> sum_;
  std::vector<int32_t> touched_;
};

}  // namespace

void contract_clusters(const WeightedGraph& graph, const Members& members, const int32_t* label,
                       int64_t labels, int64_t begin, int64_t end, std::vector<ClusterEdge>& out) {
  Neighbours neighbours(graph, members, label, labels);
  for (int64_t cluster = begin; cluster < end; ++cluster)
    neighbours.each(cluster, [&](int32_t other, int32_t weight) {
      out.push_back({static_cast<int32_t>(cluster), other, weight});
    });
}

OwnedGraph contract(const WeightedGraph& graph, int32_t* label) {
  const int64_t clusters = renumber(graph.nodes, label), constraints = graph.constraints;
  std::vector<int64_t> start(static_cast<size_t>(clusters) + 1);
  std::vector<int32_t> member(static_cast<size_t>(graph.nodes));
  counting_sort(
      0, graph.nodes, [&](int64_t node) { return label[node]; }, clusters, 0, start.data() + 1,
      [](int64_t) {}, [&](int64_t node, int64_t slot) { member[slot] = static_cast<int32_t>(node); });
  OwnedGraph coarse;
  coarse.constraints = constraints;
  coarse.node_weight.resize(static_cast<size_t>(clusters * constraints));
  for (int64_t node = 0; node < graph.nodes; ++node) {
    for (int64_t k = 0; k < constraints; ++k)
      coarse.node_weight[label[node] * constraints + k] += graph.weights_of(node)[k];
  }
  // The pages that are not written to cost nothing, and growing would take twice the memory.
  coarse.indices.reserve(static_cast<size_t>(graph.edges()));
  coarse.edge_weight.reserve(static_cast<size_t>(graph.edges()));
  coarse.indptr.resize(static_cast<size_t>(clusters) + 1);
  Neighbours neighbours(graph, {start.data(), member.data()}, label, clusters);
  for (int64_t cluster = 0; cluster < clusters; ++cluster) {
    neighbours.each(cluster, [&](int32_t other, int32_t weight) {
      coarse.indices.push_back(other);
      coarse.edge_weight.push_back(weight);
    });
    coarse.indptr[cluster + 1] = static_cast<int64_t>(coarse.indices.size());
  }
  return coarse;
}

}  // namespace pyg_batchgnn
