// The subgraph that the sampled nodes induce.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sample/rules.h"

namespace pyg_batchgnn {

// Returns all edges of a relation between sampled nodes that are allowed: for each node of the
// target type in local order, those whose source is sampled (in disjoint sampling, in the same
// example), in ascending position.
template <class Index, class Local, class Id, class Naming>
Edges<Local> induced_edges(const Relation<Index>& relation, Naming targets, int64_t source_nodes,
                           const Nodes<Id>& nodes, const NodeMap<Id>& local, AllowedEdges<Index>& allowed,
                           Layout layout, bool edge_ids) {
  std::vector<Local> source;
  std::vector<int64_t> position, in_order;
  Edges<Local> out;
  int64_t* indptr = out.open_hop(0, nodes.count());
  for (int64_t i = 0; i < nodes.count(); ++i) {
    const Target target = targets.target(nodes.code()[i]);
    allowed.clear();
    const Allowed list = allowed.of(target);
    in_order.clear();
    for (int64_t place = list.places.begin; place < list.places.end; ++place) {
      in_order.push_back(allowed.position(list.listed ? allowed.listed()[place] : place));
    }
    if (relation.time.time != nullptr) std::sort(in_order.begin(), in_order.end());
    const auto offset = static_cast<uint64_t>(target.example * source_nodes);
    for (const int64_t at : in_order) {
      const auto code = static_cast<uint64_t>(relation.edges.indices[at]) + offset;
      const int64_t found = local.find(static_cast<Id>(code));
      if (found < 0) continue;
      source.push_back(static_cast<Local>(found));
      position.push_back(at);
    }
    indptr[i + 1] = static_cast<int64_t>(source.size());
  }
  const auto count = static_cast<int64_t>(source.size());
  out.make_room(layout, edge_ids, true);
  std::copy(source.begin(), source.end(), out.next());
  if (edge_ids && relation.edges.edge_ids != nullptr) {
    translate_edge_ids(relation.edges, position.data(), count, out.edge());
  } else if (edge_ids) {
    std::copy(position.begin(), position.end(), out.edge());
  }
  out.append(count);
  out.write_targets(layout, 0, nodes.count());
  return out;
}

}  // namespace pyg_batchgnn
