// The subgraph that the sampled nodes induce.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sample/allowed_edges.h"
#include "kernels/sample/between.h"

namespace pyg_batchgnn {

// The sources of a relation's edges. In disjoint sampling they are those of the target's example.
template <class Id, class Naming>
class InducedSources {
 public:
  InducedSources(Naming targets, int64_t source_nodes, const int64_t* target, const NodeMap<Id>& local)
      : targets_(targets), source_nodes_(source_nodes), target_(target), local_(local) {}

  uint64_t code(int64_t row, int64_t node) const {
    const int64_t example = targets_.target(target_[row]).example;
    return static_cast<uint64_t>(node) + static_cast<uint64_t>(example * source_nodes_);
  }
  void prefetch(uint64_t code) const { local_.prefetch(static_cast<Id>(code)); }
  int64_t find(uint64_t code) const { return local_.find(static_cast<Id>(code)); }

 private:
  const Naming targets_;
  const int64_t source_nodes_;
  const int64_t* target_;  // the code of each row
  const NodeMap<Id>& local_;
};

// Returns all edges of a relation between sampled nodes that are allowed: for each node of the
// target type in local order, those whose source is sampled (in disjoint sampling, in the same
// example), in ascending position.
template <class Index, class Local, class Id, class Naming>
Edges<Local> induced_edges(const Relation<Index>& relation, Naming targets, int64_t source_nodes,
                           const Nodes<Id>& nodes, const NodeMap<Id>& local, AllowedEdges<Index>& allowed,
                           Layout layout, bool edge_ids) {
  const auto list = [&](int64_t row, std::vector<int64_t>* position) {
    const auto before = static_cast<std::ptrdiff_t>(position->size());
    allowed.clear();
    const Allowed found = allowed.of(targets.target(nodes.code()[row]));
    for (int64_t place = found.places.begin; place < found.places.end; ++place) {
      position->push_back(allowed.position(found.listed ? allowed.listed()[place] : place));
    }
    if (relation.time.time != nullptr) std::sort(position->begin() + before, position->end());
  };
  const InducedSources<Id, Naming> sources(targets, source_nodes, nodes.code(), local);
  return edges_between<Local>(relation.edges, nodes.count(), list, sources, layout, edge_ids);
}

}  // namespace pyg_batchgnn
