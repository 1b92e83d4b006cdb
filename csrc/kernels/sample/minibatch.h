// A sampled minibatch, by node type and by relation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/sample/nodes.h"

namespace pyg_batchgnn {

// The edges of one relation, by target. The arrays are blocks (allocation.h) that the receiver
// releases.
struct SampledEdges {
  Buffer<int64_t> indptr;  // [targets + 1]
  Buffer<int32_t> source;  // [count] local ids
  Buffer<int64_t> edge;    // [count] input edge ids; empty if they are not wanted
  int64_t targets = 0, count = 0;
  Buffer<int64_t> coo = {};  // after to_coo, instead of `source`

  // Makes PyG's edge_index: [2, count] sources, then targets.
  void to_coo() {
    int64_t* const target = coo.reserve(2 * count + 1) + count;
    std::copy_n(source.data(), count, coo.data());
    for (int64_t i = 0; i < targets; ++i) {
      std::fill(target + indptr.data()[i], target + indptr.data()[i + 1], i);
    }
    source = Buffer<int32_t>();
  }
};

// The steps of a hop: write the ends of the targets' edges to open_hop(); make_room(); append all
// sources in order. Rows that no hop writes have no edges.
class Edges {
 public:
  int64_t count() const { return count_; }
  const int64_t* indptr() const { return indptr_.data(); }
  int64_t* edge() const { return edge_.data(); }  // the ids of all edges
  int32_t* next() const { return source_.data() + count_; }
  void append(int64_t count) { count_ += count; }

  // Returns indptr. The caller writes entries first + 1 to last.
  int64_t* open_hop(int64_t first, int64_t last) {
    fill_rows(first, last);
    rows_ = last;
    return indptr_.data();
  }

  // Makes room for the edges of the hop. The size of the last hop is known only now: the small
  // arrays of the hops before move into arrays of the final size.
  void make_room(bool edge_ids, bool last_hop) {
    const int64_t total = indptr_.data()[rows_];
    const int64_t room = last_hop ? total : std::max(total, 2 * room_);
    if (room > room_ || last_hop) move(room);
    if (edge_ids) edge_.reserve(total, count_);
  }

  // Returns the edges of `targets` rows.
  SampledEdges take(int64_t targets) {
    fill_rows(targets, targets);
    return {std::move(indptr_), std::move(source_), std::move(edge_), targets, count_};
  }

 private:
  // Gives the rows before `first` their ends, and makes room for `last` rows.
  void fill_rows(int64_t first, int64_t last) {
    const bool empty = indptr_.data() == nullptr;
    int64_t* indptr = indptr_.reserve(last + 1, empty ? 0 : rows_ + 1);
    if (empty) indptr[0] = 0;
    for (; rows_ < first; ++rows_) indptr[rows_ + 1] = count_;
  }

  void move(int64_t room) {
    Buffer<int32_t> bigger;
    bigger.reserve(room);
    if (count_ > 0) std::memcpy(bigger.data(), source_.data(), static_cast<size_t>(count_) * sizeof(int32_t));
    source_ = std::move(bigger);
    room_ = room;
  }

  Buffer<int64_t> indptr_;
  Buffer<int32_t> source_;
  Buffer<int64_t> edge_;
  int64_t rows_ = 0, count_ = 0, room_ = 0;
};

// The sampled nodes of one type. The arrays are blocks (allocation.h) that the receiver releases.
struct SampledNodes {
  Buffer<int64_t> node;     // [count] ids in order of discovery, seeds first
  Buffer<int64_t> example;  // [count] in disjoint sampling, else empty
  int64_t count = 0;
};

// One sampled minibatch. A type that is not reached has no arrays, nor have the relations into a
// type without expanded nodes.
struct SampledMinibatch {
  std::vector<SampledNodes> nodes;
  std::vector<SampledEdges> edges;
  std::vector<int64_t> nodes_per_hop;  // [types, hops + 1]
  std::vector<int64_t> edges_per_hop;  // [relations, hops]
};

// A minibatch that grows hop by hop: its nodes by type and its edges by relation.
template <class Id, class Naming>
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
  Edges& edges(size_t relation) { return edges_[relation]; }

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
  void take_edges(size_t relation, int64_t rows) {
    out_.edges.resize(edges_.size());
    if (rows > 0) out_.edges[relation] = edges_[relation].take(rows);
  }

  // Ends the minibatch, after `take_edges` for each relation. `naming_of` gives that of each type.
  template <class NamingOf>
  SampledMinibatch take(const NamingOf& naming_of) {
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
  std::vector<Edges> edges_;
  SampledMinibatch out_;
};

}  // namespace pyg_batchgnn
