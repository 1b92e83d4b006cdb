// The edges between nodes that are sampled already.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/prefetch.h"
#include "kernels/sample/allowed_edges.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/pick.h"

namespace pyg_batchgnn {

// The adjacency lists of consecutive rows. They are read together, so that cache misses overlap.
struct RowLists {
  std::vector<int64_t> position;  // in `indices`, row after row
  std::vector<int64_t> end;       // the end of each row's positions

  // Lists rows from `first` on, until there are kBlock positions or no rows below `rows` are left.
  // list(row, &position) appends those of one row. Returns the first row that is left.
  template <class List>
  int64_t fill(int64_t first, int64_t rows, const List& list) {
    position.clear();
    end.clear();
    while (first < rows && static_cast<int64_t>(position.size()) < kBlock) {
      list(first++, &position);
      end.push_back(static_cast<int64_t>(position.size()));
    }
    return first;
  }
};

// Returns all edges of `rows` targets in local order whose source is sampled, in the order of the
// lists. list(row, &position) appends the positions of a row's edges. The sources have
//   code(row, node)   the name of a source of a row
//   prefetch(code)
//   find(code)        its local id, -1 if it is not sampled
template <class Index, class List, class Sources>
Edges edges_between(const Csc<Index>& edges, int64_t rows, const List& list, const Sources& sources,
                    bool edge_ids) {
  std::vector<int32_t> local;
  std::vector<int64_t> taken;
  std::vector<uint64_t> code;
  RowLists lists;
  Edges out;
  int64_t* indptr = out.open_hop(0, rows);
  for (int64_t row = 0; row < rows;) {
    const int64_t first = row;
    row = lists.fill(row, rows, list);
    for (const int64_t at : lists.position) prefetch_line(&edges.indices[at]);
    code.clear();
    size_t place = 0;
    for (int64_t one = first; one < row; ++one) {
      for (const auto end = static_cast<size_t>(lists.end[static_cast<size_t>(one - first)]); place < end;) {
        code.push_back(sources.code(one, static_cast<int64_t>(edges.indices[lists.position[place++]])));
        sources.prefetch(code.back());
      }
    }
    place = 0;
    for (int64_t one = first; one < row; ++one) {
      const auto end = static_cast<size_t>(lists.end[static_cast<size_t>(one - first)]);
      for (; place < end; ++place) {
        const int64_t found = sources.find(code[place]);
        if (found < 0) continue;
        local.push_back(static_cast<int32_t>(found));
        taken.push_back(lists.position[place]);
      }
      indptr[one + 1] = static_cast<int64_t>(local.size());
    }
  }
  const auto count = static_cast<int64_t>(local.size());
  out.make_room(edge_ids, true);
  std::copy(local.begin(), local.end(), out.next());
  if (edge_ids && edges.edge_ids) {
    translate_edge_ids(edges, taken.data(), count, out.edge());
  } else if (edge_ids) {
    std::copy(taken.begin(), taken.end(), out.edge());
  }
  out.append(count);
  return out;
}

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
template <class Index, class Id, class Naming>
Edges induced_edges(const Relation<Index>& relation, Naming targets, int64_t source_nodes,
                    const Nodes<Id>& nodes, const NodeMap<Id>& local, AllowedEdges<Index>& allowed,
                    bool edge_ids) {
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
  return edges_between(relation.edges, nodes.count(), list, sources, edge_ids);
}

}  // namespace pyg_batchgnn
