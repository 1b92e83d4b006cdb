// A minibatch that grows hop by hop: its nodes by type and its edges by relation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/sample/edges.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/naming.h"
#include "kernels/sample/nodes.h"

namespace pyg_batchgnn {

template <class Local, class Id, class Naming>
class Growth {
 public:
  Growth(size_t types, size_t relations, int64_t hops) : hops_(hops), nodes_(types), edges_(relations) {
    out_.nodes_per_hop.resize(types * static_cast<size_t>(hops + 1));
    out_.edges_per_hop.resize(relations * static_cast<size_t>(hops));
  }

  size_t types() const { return nodes_.size(); }
  size_t relations() const { return edges_.size(); }
  Nodes<Id>& nodes(size_t type) { return nodes_[type]; }
  const Nodes<Id>& nodes(size_t type) const { return nodes_[type]; }
  Edges<Local>& edges(size_t relation) { return edges_[relation]; }

  // Takes the seeds of one type. No more than `most` different codes can be found. `example` is
  // read in disjoint sampling only.
  void take_seeds(size_t type, Naming naming, const int64_t* node, const int64_t* example, int64_t count,
                  int64_t most) {
    if constexpr (Naming::kDisjoint) {
      std::vector<int64_t> code(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) code[static_cast<size_t>(i)] = naming.code({node[i], example[i]});
      nodes_[type].take_seeds(code.data(), count, most);
    } else {
      nodes_[type].take_seeds(node, count, most);
    }
    found(type, 0) = count;
  }

  // Notes the number of edges that a hop found in a relation.
  void count_edges(size_t relation, int64_t hop, int64_t edges) {
    out_.edges_per_hop[relation * static_cast<size_t>(hops_) + static_cast<size_t>(hop)] = edges;
  }

  // What a hop found becomes the next frontier.
  void close_hop(int64_t hop) {
    for (size_t type = 0; type < nodes_.size(); ++type) found(type, hop + 1) = nodes_[type].close_hop();
  }

  // Returns the edges of a relation for the first `rows` nodes of its target type.
  void take_edges(size_t relation, Layout layout, int64_t rows) {
    out_.edges.resize(edges_.size());
    if (rows > 0) out_.edges[relation] = edges_[relation].take(layout, rows);
  }

  // Ends the minibatch, after `take_edges` for each relation. `naming_of` gives that of each type.
  template <class NamingOf>
  SampledMinibatch<Local> take(const NamingOf& naming_of) {
    out_.edges.resize(edges_.size());
    out_.nodes.resize(nodes_.size());
    for (size_t type = 0; type < nodes_.size(); ++type) {
      if (nodes_[type].count() > 0) take_nodes(type, naming_of(type));
    }
    return std::move(out_);
  }

 private:
  int64_t& found(size_t type, int64_t hop) {
    return out_.nodes_per_hop[type * static_cast<size_t>(hops_ + 1) + static_cast<size_t>(hop)];
  }

  void take_nodes(size_t type, Naming naming) {
    SampledNodes& out = out_.nodes[type];
    out.count = nodes_[type].count();
    out.node = nodes_[type].take();
    if constexpr (Naming::kDisjoint) {
      int64_t* example = out.example.reserve(out.count);
      for (int64_t i = 0; i < out.count; ++i) {
        const Target of = naming.target(out.node.data()[i]);
        out.node.data()[i] = of.node;
        example[i] = of.example;
      }
    }
  }

  int64_t hops_;
  std::vector<Nodes<Id>> nodes_;
  std::vector<Edges<Local>> edges_;
  SampledMinibatch<Local> out_;
};

}  // namespace pyg_batchgnn
