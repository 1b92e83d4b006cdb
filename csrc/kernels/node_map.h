// From node id to local id, for one minibatch at a time.
//
// Open addressing over a table that is bounded by the minibatch, not by the graph, and that is never cleared
// between minibatches: a stored value is offset by the number of local ids given out before this minibatch
// began, so that whatever an earlier minibatch left behind is smaller than any value of this one and counts
// as empty.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

// `Id` is uint32_t where the graph has fewer than 2^32 nodes (8 bytes an entry) and uint64_t beyond (16
// bytes).
template <class Id>
class NodeMap {
 public:
  struct Entry {
    Id id;
    uint32_t value;  // base_ + local id; below base_ means empty
  };

  // Starts a minibatch: the map is empty.
  void begin() {
    if (static_cast<uint64_t>(base_) + used_ > kLastBase) {
      clear();
    } else {
      base_ += used_;
    }
    used_ = 0;
  }

  // Makes room for local ids below `count`; to call before they are given. `nodes` are those given so far, in
  // order.
  template <class Node>
  void reserve(int64_t count, const Node* nodes, int64_t given) {
    if (count * kInverseLoad2 > 2 * capacity_) grow(count, nodes, given);
  }

  void prefetch(Id id) const { __builtin_prefetch(table_.data() + home(id), 1); }

  // The local id of `id`, which is `fresh` where the node was not known yet.
  uint32_t find_or_insert(Id id, uint32_t fresh) {
    Entry* entry = table_.data() + home(id);
    // Known or empty at the first look covers most calls, and deciding between the two without a branch
    // spares the processor a guess that it would get wrong half of the time.
    if (entry->value >= base_ && entry->id != id) [[unlikely]]
      entry = probe(entry, id);
    const bool known = entry->value >= base_;
    const uint32_t value = known ? entry->value : base_ + fresh;
    entry->id = id;
    entry->value = value;
    used_ = known ? used_ : int64_t{fresh} + 1;
    return value - base_;
  }

 private:
  static constexpr int64_t kInverseLoad2 = 3;  // at most two thirds full
  static constexpr uint64_t kLastBase = 0x7FFFFFFFu;

  uint64_t home(Id id) const { return (static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u) >> shift_; }

  Entry* probe(Entry* entry, Id id) {
    Entry* const end = table_.data() + capacity_;
    do {
      if (++entry == end) entry = table_.data();
    } while (entry->value >= base_ && entry->id != id);
    return entry;
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
  int64_t used_ = 0;  // local ids given out in this minibatch, those of repeated seeds included
};

}  // namespace pyg_batchgnn
