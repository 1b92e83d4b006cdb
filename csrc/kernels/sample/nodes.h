// The nodes of one type in a minibatch that grows, with local ids in order of discovery.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/sample/node_map.h"

namespace pyg_batchgnn {

// The number of picks that are handled together. The cache misses of one step overlap, and the
// prefetched lines still lie in the second-level cache when the next step reads them.
constexpr int64_t kBlock = 256;
constexpr int64_t kPointerAhead = 32;  // nodes between the prefetch of a pointer and its use
constexpr int64_t kTargets = 64;       // nodes whose lists are looked up together

// The type of node ids in a map of local ids.
template <class Index>
using MapId = std::conditional_t<sizeof(Index) == 4, uint32_t, uint64_t>;

// The nodes are named by codes: node ids, or in disjoint sampling example * num_nodes + id.
template <class Id>
class Nodes {
 public:
  // No more than `most` different codes can be found.
  void take_seeds(const int64_t* seeds, int64_t count, int64_t most) {
    std::copy(seeds, seeds + count, code_.reserve(count + 1));
    count_ = last_ = count;
    most_ = most > std::numeric_limits<int64_t>::max() - count ? most : most + count;
  }

  // Fills a map with the nodes found so far.
  void enter(NodeMap<Id>& local) const {
    local.begin();
    local.reserve(count_ + 1, code_.data(), 0);
    const int64_t* code = code_.data();
    for (int64_t i = 0; i < count_; ++i) {
      if (i + kPointerAhead < count_) local.prefetch(static_cast<Id>(code[i + kPointerAhead]));
      local.find_or_insert(static_cast<Id>(code[i]), static_cast<uint32_t>(i));
    }
  }

  // The frontier of the hop is the nodes first() to last(), found by the previous hop.
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  int64_t count() const { return count_; }
  const int64_t* code() const { return code_.data(); }

  // Makes room for the sources of `edges` more edges.
  void make_room(int64_t edges) {
    const int64_t wanted = std::min(count_ + edges, most_) + 1;  // insertion writes before it knows
    const int64_t held = code_.capacity();
    if (wanted > held) code_.reserve(std::max(wanted, held + held / 2), count_);
  }

  // Makes room in the map. Called before prefetching.
  void prepare(NodeMap<Id>& local, int64_t count) const {
    if (count_ > kMost - kBlock) {
      throw std::length_error("a minibatch reaches more than 2^31 nodes; use smaller fanouts or batches");
    }
    local.reserve(count_ + count, code_.data(), count_);
  }

  // Finds or assigns the local ids of `count` sources, at most kBlock, already prefetched.
  template <class Local>
  void relabel(NodeMap<Id>& local, const Id* source, int64_t count, Local* out) {
    count_ = local.relabel(source, count, static_cast<uint32_t>(count_), code_.data(), out);
  }

  // Returns the number of nodes that the hop found.
  int64_t close_hop() {
    first_ = last_;
    last_ = count_;
    return last_ - first_;
  }

  Buffer<int64_t> take() { return std::move(code_); }

 private:
  static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

  Buffer<int64_t> code_;
  int64_t count_ = 0, first_ = 0, last_ = 0, most_ = 0;
};

}  // namespace pyg_batchgnn
