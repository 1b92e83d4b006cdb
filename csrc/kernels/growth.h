// A minibatch that grows hop by hop, with local ids in order of discovery.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/node_map.h"

namespace pyg_batchgnn {

// The number of picks that are handled together. The cache misses of one step overlap, and the
// prefetched lines still lie in the first-level cache when the next step reads them.
constexpr int64_t kBlock = 256;
constexpr int64_t kPointerAhead = 32;  // nodes between the prefetch of a pointer and its use

enum class Layout { kCsc, kCoo };  // kCoo adds the destinations to `edges`, as in PyG's edge_index

// One sampled minibatch. The arrays are blocks (allocation.h) that the receiver releases.
template <class Local>
struct Sampled {
  Buffer<int64_t> node;    // [nodes] ids in order of discovery, seeds first
  Buffer<int64_t> indptr;  // [destinations + 1]
  Buffer<Local>
      edges;  // [edges] local sources; with destinations, [2, edges] sources then local destinations
  Buffer<int64_t> edge;  // [edges] input edge ids; empty if they are not wanted
  int64_t nodes = 0, destinations = 0, edge_count = 0;
  std::vector<int64_t> nodes_per_hop;  // [hops + 1]
  std::vector<int64_t> edges_per_hop;  // [hops]
};

// The type of node ids in a map of local ids.
template <class Index>
using MapId = std::conditional_t<sizeof(Index) == 4, uint32_t, uint64_t>;

// The steps of a hop: write the ends of the destinations' edges to open_hop(); make_room();
// relabel() all sources in order; close_hop().
template <class Index, class Local>
class Growth {
 public:
  using Id = MapId<Index>;

  // `num_nodes` is that of the graph; no more nodes can be found.
  Growth(Layout layout, bool edge_ids, int64_t num_nodes)
      : layout_(layout), edge_ids_(edge_ids), num_nodes_(num_nodes) {}

  void take_seeds(const int64_t* seeds, int64_t count) {
    std::copy(seeds, seeds + count, out_.node.reserve(count + 1));
    out_.nodes = count;
    out_.nodes_per_hop.push_back(count);
    out_.indptr.reserve(1)[0] = 0;
    last_ = count;
  }

  // Fills a map with the nodes found so far.
  void enter(NodeMap<Id>& local) const {
    local.begin();
    local.reserve(out_.nodes + 1, out_.node.data(), 0);
    const int64_t* node = out_.node.data();
    for (int64_t i = 0; i < out_.nodes; ++i) {
      if (i + kPointerAhead < out_.nodes) local.prefetch(static_cast<Id>(node[i + kPointerAhead]));
      local.find_or_insert(static_cast<Id>(node[i]), static_cast<uint32_t>(i));
    }
  }

  // The destinations of the hop are the nodes first() to last(), found by the previous hop.
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  const int64_t* node() const { return out_.node.data(); }
  const int64_t* indptr() const { return out_.indptr.data(); }
  // Returns the place of the ids of the next edges.
  int64_t* edge() const { return out_.edge.data(); }
  int64_t edges() const { return out_.edge_count; }

  // Returns indptr. The caller writes entries first() + 1 to last().
  int64_t* open_hop() {
    out_.destinations = last_;
    return out_.indptr.reserve(last_ + 1, first_ + 1);
  }

  // Makes room for the edges of the hop and the nodes that they may find. The size of the last hop
  // is known only now: the small arrays of the hops before move into arrays of the final size.
  void make_room(bool last_hop) {
    edges_before_ = out_.edge_count;
    const int64_t total = out_.indptr.data()[last_], edges = total - out_.edge_count;
    const int64_t nodes = std::min(out_.nodes + edges, out_.nodes_per_hop[0] + num_nodes_);
    out_.node.reserve(nodes + 1, out_.nodes);  // one more, because insertion writes before it knows
    const bool coo = layout_ == Layout::kCoo;
    const int64_t room = last_hop ? total : std::max(total, 2 * edge_room_);
    if (room > edge_room_ || last_hop) {
      Buffer<Local> bigger;
      bigger.reserve(coo ? 2 * room : room);
      copy(bigger.data(), out_.edges.data(), out_.edge_count);
      if (coo) copy(bigger.data() + room, out_.edges.data() + edge_room_, out_.edge_count);
      out_.edges = std::move(bigger);
      edge_room_ = room;
    }
    if (edge_ids_) out_.edge.reserve(total, out_.edge_count);
  }

  // Finds or assigns the local ids of the sources of the next edges, at most kBlock. They are
  // already prefetched in `local`.
  void relabel(NodeMap<Id>& local, const Id* source, int64_t count) {
    out_.nodes = local.relabel(source, count, static_cast<uint32_t>(out_.nodes), out_.node.data(),
                               out_.edges.data() + out_.edge_count);
    out_.edge_count += count;
  }

  // Makes room in the map. Called before prefetching.
  void prepare(NodeMap<Id>& local, int64_t count) const {
    if (out_.nodes > kMaxNodes - kBlock) {
      throw std::length_error("a minibatch reaches more than 2^31 nodes; use smaller fanouts or batches");
    }
    local.reserve(out_.nodes + count, out_.node.data(), out_.nodes);
  }

  void write_destinations(int64_t first, int64_t last) {
    if (layout_ != Layout::kCoo) return;
    const int64_t* indptr = out_.indptr.data();
    Local* destination = out_.edges.data() + edge_room_;
    for (int64_t i = first; i < last; ++i) {
      std::fill(destination + indptr[i], destination + indptr[i + 1], static_cast<Local>(i));
    }
  }

  void close_hop() {
    out_.edges_per_hop.push_back(out_.edge_count - edges_before_);
    out_.nodes_per_hop.push_back(out_.nodes - last_);
    first_ = last_;
    last_ = out_.nodes;
  }

  Sampled<Local> take() { return std::move(out_); }

 private:
  static constexpr int64_t kMaxNodes = std::numeric_limits<int32_t>::max();

  template <class T>
  static void copy(T* to, const T* from, int64_t count) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  }

  Layout layout_;
  bool edge_ids_;
  int64_t num_nodes_;
  Sampled<Local> out_;
  int64_t first_ = 0, last_ = 0;
  int64_t edge_room_ = 0, edges_before_ = 0;
};

}  // namespace pyg_batchgnn
