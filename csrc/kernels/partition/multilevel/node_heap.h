// A heap of nodes by priority.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pyg_batchgnn {

// The node of the highest priority is on top. A node's priority can be changed.
class NodeHeap {
 public:
  explicit NodeHeap(int64_t nodes) : place_(static_cast<size_t>(nodes), kNone) {}

  bool empty() const { return entries_.empty(); }
  int64_t top_priority() const { return entries_[0].priority; }
  bool holds(int32_t node) const { return place_[node] != kNone; }

  // Adds the node, or changes its priority.
  void set(int32_t node, int64_t priority) {
    int32_t at = place_[node];
    if (at == kNone) {
      at = static_cast<int32_t>(entries_.size());
      entries_.push_back({priority, node});
      place_[node] = at;
      rise(at);
      return;
    }
    const int64_t before = std::exchange(entries_[at].priority, priority);
    if (priority > before)
      rise(at);
    else if (priority < before)
      sink(at);
  }

  int32_t pop() {
    const int32_t node = entries_[0].node;
    remove(node);
    return node;
  }

  void remove(int32_t node) {
    const int32_t at = std::exchange(place_[node], kNone);
    if (at == kNone) return;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at == static_cast<int32_t>(entries_.size())) return;
    entries_[at] = last;
    place_[last.node] = at;
    rise(at);
    sink(place_[last.node]);
  }

  void clear() {
    for (const Entry& entry : entries_) place_[entry.node] = kNone;
    entries_.clear();
  }

 private:
  static constexpr int32_t kNone = -1;

  struct Entry {
    int64_t priority;
    int32_t node;
  };

  void put(int32_t at, const Entry& entry) {
    entries_[at] = entry;
    place_[entry.node] = at;
  }

  void rise(int32_t at) {
    const Entry entry = entries_[at];
    while (at > 0) {
      const int32_t above = (at - 1) / 2;
      if (entries_[above].priority >= entry.priority) break;
      put(at, entries_[above]);
      at = above;
    }
    put(at, entry);
  }

  void sink(int32_t at) {
    const Entry entry = entries_[at];
    const auto size = static_cast<int32_t>(entries_.size());
    for (int32_t below = 2 * at + 1; below < size; below = 2 * at + 1) {
      if (below + 1 < size && entries_[below + 1].priority > entries_[below].priority) ++below;
      if (entries_[below].priority <= entry.priority) break;
      put(at, entries_[below]);
      at = below;
    }
    put(at, entry);
  }

  std::vector<Entry> entries_;
  std::vector<int32_t> place_;  // of each node among the entries
};

// Returns a priority that orders by gain, and equal gains by the word.
inline int64_t priority_of(int64_t gain, uint64_t word) {
  constexpr int kTieBits = 16;
  return gain * (int64_t{1} << kTieBits) + static_cast<int64_t>(word >> (64 - kTieBits));
}

}  // namespace pyg_batchgnn
