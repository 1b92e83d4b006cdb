// The nodes of one type in a minibatch that grows, with local ids in order of discovery.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/prefetch.h"
#include "kernels/random.h"

namespace pyg_batchgnn {

// The names of nodes within a minibatch: codes.

// The node that is expanded, and its example in disjoint sampling.
struct Target {
  int64_t node;
  int64_t example;
};

// Names of nodes are ids: all examples share their nodes.
struct SharedNodes {
  static constexpr bool kDisjoint = false;

  explicit SharedNodes(int64_t) {}
  int64_t code(Target target) const { return target.node; }
  Target target(int64_t code) const { return {code, 0}; }
  uint64_t key(uint64_t relation_key, int64_t code) const {
    return fold(relation_key, static_cast<uint64_t>(code));
  }
};

// Names of nodes are example * nodes + id: an example has nodes of its own.
struct DisjointNodes {
  static constexpr bool kDisjoint = true;

  explicit DisjointNodes(int64_t num_nodes)
      : nodes_(num_nodes), inverse_(1.0 / static_cast<double>(std::max<int64_t>(1, num_nodes))) {}
  int64_t code(Target target) const { return target.example * nodes_ + target.node; }
  Target target(int64_t code) const {
    const int64_t of = example(code);
    return {code - of * nodes_, of};
  }
  uint64_t key(uint64_t relation_key, int64_t code) const {
    const Target of = target(code);
    return fold(fold(relation_key, static_cast<uint64_t>(of.node)), static_cast<uint64_t>(of.example));
  }

 private:
  // Returns code / nodes, mostly without a division.
  int64_t example(int64_t code) const {
    constexpr int64_t kExact = int64_t{1} << 52;
    if (code >= kExact) return code / nodes_;
    const auto near = static_cast<int64_t>(static_cast<double>(code) * inverse_);
    const int64_t rest = code - near * nodes_;
    return near + (rest >= nodes_ ? 1 : 0) - (rest < 0 ? 1 : 0);
  }

  int64_t nodes_;
  double inverse_;
};

// A map from node ids to local ids, for one minibatch at a time.
//
// It uses open addressing in a table whose size is bounded by the minibatch. The table is never
// cleared between minibatches. Stored values are offset by the number of local ids of all
// minibatches before, so values of an earlier minibatch are smaller than those of this one and
// count as empty.

// `Id` is uint32_t for fewer than 2^32 nodes (8 bytes per entry), else uint64_t (16 bytes).
template <class Id>
class NodeMap {
 public:
  struct Entry {
    Id id;
    uint32_t value;  // base_ + local id; below base_ means empty
  };

  // Starts a minibatch with an empty map.
  void begin() {
    if (static_cast<uint64_t>(base_) + used_ > kLastBase) {
      clear();
    } else {
      base_ += used_;
    }
    used_ = 0;
  }

  // Makes room for local ids below `count`. `nodes`: those so far, in order of their local ids.
  template <class Node>
  void reserve(int64_t count, const Node* nodes, int64_t given) {
    if (count * kInverseLoad2 > 2 * capacity_) grow(count, nodes, given);
  }

  void prefetch(Id id) const { prefetch_line(View(*this).home(id)); }

  // Returns the local id of a node, `fresh` if the node is new.
  uint32_t find_or_insert(Id id, uint32_t fresh) {
    const uint32_t local = settle(View(*this), id, fresh);
    used_ = std::max(used_, int64_t{local} + 1);
    return local;
  }

  // Returns the local id of a node, -1 if it is not in the map.
  int64_t find(Id id) const {
    const View view(*this);
    for (const Entry* entry = view.home(id);;) {
      if (entry->value < view.base) return -1;
      if (entry->id == id) return entry->value - view.base;
      if (++entry == view.end) entry = view.table;
    }
  }

  // Writes the local id of every source to `local`. New sources get the next ids from `fresh` on
  // and are appended to `nodes`, which has room for one more. Returns the next local id.
  template <class Node, class Local>
  uint32_t relabel(const Id* source, int64_t count, uint32_t fresh, Node* nodes, Local* local) {
    const View view(*this);
    for (int64_t e = 0; e < count; ++e) {
      const uint32_t found = settle(view, source[e], fresh);
      nodes[fresh] = static_cast<Node>(source[e]);
      local[e] = static_cast<Local>(found);
      fresh += found == fresh ? 1 : 0;
    }
    used_ = std::max(used_, int64_t{fresh});
    return fresh;
  }

 private:
  static constexpr int64_t kInverseLoad2 = 3;  // at most two thirds full
  static constexpr uint64_t kLastBase = 0x7FFFFFFFu;

  // The state of a look-up. The stores of the look-up cannot alias it, so it stays in registers.
  struct View {
    explicit View(const NodeMap& map)
        : table(map.table_.data()),
          end(map.table_.data() + map.capacity_),
          base(map.base_),
          shift(map.shift_) {}
    Entry* home(Id id) const { return table + ((static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u) >> shift); }
    Entry *table, *end;
    uint32_t base;
    int shift;
  };

  static uint32_t settle(const View& view, Id id, uint32_t fresh) {
    for (Entry* entry = view.home(id);;) {
      const Entry seen = *entry;
      if (seen.value < view.base) {
        *entry = {id, view.base + fresh};
        return fresh;
      }
      if (seen.id == id) return seen.value - view.base;
      if (++entry == view.end) entry = view.table;
    }
  }

  template <class Node>
  void grow(int64_t count, const Node* nodes, int64_t given) {
    const auto wanted = std::bit_ceil(static_cast<uint64_t>(count * kInverseLoad2 + 1) / 2 + 64);
    table_ = Buffer<Entry>();
    table_.reserve(static_cast<int64_t>(wanted));
    capacity_ = static_cast<int64_t>(wanted);
    shift_ = 64 - std::countr_zero(wanted);
    clear();
    used_ = 0;
    for (int64_t i = 0; i < given; ++i) find_or_insert(static_cast<Id>(nodes[i]), static_cast<uint32_t>(i));
    used_ = given;
  }

  void clear() {
    std::memset(static_cast<void*>(table_.data()), 0, static_cast<size_t>(capacity_) * sizeof(Entry));
    base_ = 1;
  }

  Buffer<Entry> table_;
  int64_t capacity_ = 0;
  int shift_ = 63;
  uint32_t base_ = 1;
  int64_t used_ = 0;  // local ids of this minibatch, those of repeated seeds included
};

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
