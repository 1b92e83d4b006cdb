// A minibatch of one node type and one relation that grows hop by hop, for sampling over ranks.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/sample/edges.h"
#include "kernels/sample/nodes.h"

namespace pyg_batchgnn {

// One sampled minibatch. The arrays are blocks (allocation.h) that the receiver releases.
template <class Local>
struct Sampled {
  Buffer<int64_t> node;  // [nodes] ids in order of discovery, seeds first
  int64_t nodes = 0;
  SampledEdges<Local> edges;
  std::vector<int64_t> nodes_per_hop;  // [hops + 1]
  std::vector<int64_t> edges_per_hop;  // [hops]
};

// The type of node ids in a map of local ids.
template <class Index>
using MapId = std::conditional_t<sizeof(Index) == 4, uint32_t, uint64_t>;

// The steps of a hop: write the ends of the targets' edges to open_hop(); make_room(); relabel()
// all sources in order; close_hop().
template <class Index, class Local>
class Growth {
 public:
  using Id = MapId<Index>;

  // `num_nodes` is that of the graph; no more nodes can be found.
  Growth(Layout layout, bool edge_ids, int64_t num_nodes)
      : layout_(layout), edge_ids_(edge_ids), num_nodes_(num_nodes) {}

  void take_seeds(const int64_t* seeds, int64_t count) {
    nodes_.take_seeds(seeds, count, num_nodes_);
    nodes_per_hop_.push_back(count);
  }

  void enter(NodeMap<Id>& local) const { nodes_.enter(local); }
  int64_t first() const { return nodes_.first(); }
  int64_t last() const { return nodes_.last(); }
  const int64_t* node() const { return nodes_.code(); }
  const int64_t* indptr() const { return edges_.indptr(); }
  int64_t* edge() const { return edges_.edge(); }
  int64_t* open_hop() { return edges_.open_hop(first(), last()); }

  void make_room(bool last_hop) {
    edges_before_ = edges_.count();
    nodes_.make_room(edges_.indptr()[last()] - edges_before_);
    edges_.make_room(layout_, edge_ids_, last_hop);
  }

  void prepare(NodeMap<Id>& local, int64_t count) const { nodes_.prepare(local, count); }

  void relabel(NodeMap<Id>& local, const Id* source, int64_t count) {
    nodes_.relabel(local, source, count, edges_.next());
    edges_.append(count);
  }

  void write_destinations(int64_t first, int64_t last) { edges_.write_targets(layout_, first, last); }

  void close_hop() {
    edges_per_hop_.push_back(edges_.count() - edges_before_);
    nodes_per_hop_.push_back(nodes_.close_hop());
  }

  Sampled<Local> take() {
    const int64_t nodes = nodes_.count();
    return {nodes_.take(), nodes, edges_.take(layout_, nodes_.first()), std::move(nodes_per_hop_),
            std::move(edges_per_hop_)};
  }

 private:
  Layout layout_;
  bool edge_ids_;
  int64_t num_nodes_;
  Nodes<Id> nodes_;
  Edges<Local> edges_;
  std::vector<int64_t> nodes_per_hop_, edges_per_hop_;
  int64_t edges_before_ = 0;
};

}  // namespace pyg_batchgnn
