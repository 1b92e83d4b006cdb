// Picks from adjacency lists, in groups with overlapping cache misses.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/prefetch.h"
#include "kernels/sample/choose.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/labor.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/temporal.h"
#include "kernels/sample/weighted.h"

namespace pyg_batchgnn {

// What is allowed for one target: a range of places, or places that are listed where some of the
// range are excluded. Places are positions in the time order of a relation that has one, else in
// `indices`.
struct Allowed {
  int64_t list;   // the begin of the adjacency
  Places places;  // in the range or, if listed, in the buffer of listed places
  bool listed;
};

// The list of one target under any rule.
struct RuledList {
  Allowed allowed;
  int64_t positives;  // weights above zero among the allowed
  bool all;           // everything allowed is picked, weights not looked at
};

// The memory of the picks of one group of lists.
struct PickBuffers {
  Buffer<int64_t> position;  // in `indices`
  Buffer<double> drawn;      // where draws by weight fall among the sums
};

// The memory that a thread keeps between minibatches. Its size is bounded by the largest minibatch.
template <class Index>
struct Scratch {
  std::vector<NodeMap<MapId<Index>>> local;  // by node type
  std::vector<NodeMap<uint64_t>> disjoint;   // by node type, for codes of disjoint sampling
  NodeMap<uint64_t> picked;
  Buffer<int64_t> first;              // the begin of the adjacency of each target of a hop
  std::array<PickBuffers, 2> groups;  // the group that is chosen from and the next one
  std::vector<RuledList> lists;       // of the targets of a hop
  std::array<TimeRange, kTargets> searches;
  std::vector<int64_t> listed;  // allowed places where some are excluded
  WeightedScratch weighted;
  LaborScratch labor;
  std::vector<int64_t> latest;  // the time of each example's seed
  Buffer<uint64_t> offset;      // in disjoint sampling, the code of node 0 in the example of each pick

  Scratch() : local(1) {}

  auto& maps(SharedNodes) { return local; }
  auto& maps(DisjointNodes) { return disjoint; }
};

// Prefetches the entries of some picks. Of a long list they would be evicted before they are read.
template <class Index>
void prefetch_picks(const Index* indices, const int64_t* position, int64_t picks) {
  for (int64_t p = 0; picks <= kBlock && p < picks; ++p) prefetch_line(&indices[position[p]]);
}

// Converts positions to input edge ids; may work in place.
template <class EdgeId, class Out>
void translate(const EdgeId* ids, const int64_t* position, int64_t count, Out* edge) {
  constexpr int64_t kAhead = 64;
  for (int64_t e = 0; e < count; ++e) {
    if (e + kAhead < count) prefetch_line(&ids[position[e + kAhead]]);
    edge[e] = static_cast<Out>(ids[position[e]]);
  }
}

// Turns places of a time order into positions in `indices`. Those of one group are prefetched
// already, and their entries are prefetched next.
template <class Position, class Index>
void settle_places(const Position* position, const Index* indices, int64_t* place, int64_t count) {
  if (count > kBlock) return translate(position, place, count, place);
  for (int64_t p = 0; p < count; ++p) {
    place[p] = static_cast<int64_t>(position[place[p]]);
    prefetch_line(&indices[place[p]]);
  }
}

template <class Index, class Out>
void translate_edge_ids(const Csc<Index>& graph, const int64_t* position, int64_t count, Out* edge) {
  with_integers(graph.edge_ids, [&](const auto* ids) { translate(ids, position, count, edge); });
}

}  // namespace pyg_batchgnn
