// A map from node ids to local ids, for one minibatch at a time.
//
// It uses open addressing in a table whose size is bounded by the minibatch. The table is never
// cleared between minibatches. Stored values are offset by the number of local ids of all
// minibatches before, so values of an earlier minibatch are smaller than those of this one and
// count as empty.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/allocation.h"
#include "kernels/prefetch.h"

namespace pyg_batchgnn {

// `Id` is uint32_t if the graph has fewer than 2^32 nodes (8 bytes per entry), else uint64_t (16
// bytes).
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

  // Makes room for local ids below `count`. `nodes` are the nodes so far, in order of their local
  // ids.
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
  // and are appended to `nodes`, which has room for one more entry than there are nodes. Returns
  // the next local id.
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

}  // namespace pyg_batchgnn
