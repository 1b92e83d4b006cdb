// The edges of one relation in a minibatch that grows, compressed by target.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

enum class Layout { kCsc, kCoo };  // kCoo adds the targets to `edges`, as in PyG's edge_index

// The arrays are blocks (allocation.h) that the receiver releases.
template <class Local>
struct SampledEdges {
  Buffer<int64_t> indptr;  // [targets + 1]
  Buffer<Local> edges;     // [count] local sources; with targets, [2, count] sources then targets
  Buffer<int64_t> edge;    // [count] input edge ids; empty if they are not wanted
  int64_t targets = 0, count = 0;
};

// The steps of a hop: write the ends of the targets' edges to open_hop(); make_room(); append all
// sources in order. Rows that no hop writes have no edges.
template <class Local>
class Edges {
 public:
  int64_t count() const { return count_; }
  const int64_t* indptr() const { return indptr_.data(); }
  int64_t* edge() const { return edge_.data(); }  // the ids of all edges
  Local* next() const { return edges_.data() + count_; }
  void append(int64_t count) { count_ += count; }

  // Returns indptr. The caller writes entries first + 1 to last.
  int64_t* open_hop(int64_t first, int64_t last) {
    fill_rows(first, last);
    rows_ = last;
    return indptr_.data();
  }

  // Makes room for the edges of the hop. The size of the last hop is known only now: the small
  // arrays of the hops before move into arrays of the final size.
  void make_room(Layout layout, bool edge_ids, bool last_hop) {
    const int64_t total = indptr_.data()[rows_];
    const int64_t room = last_hop ? total : std::max(total, 2 * room_);
    if (room > room_ || last_hop) move(layout, room);
    if (edge_ids) edge_.reserve(total, count_);
  }

  void write_targets(Layout layout, int64_t first, int64_t last) {
    if (layout != Layout::kCoo) return;
    const int64_t* indptr = indptr_.data();
    Local* target = edges_.data() + room_;
    for (int64_t i = first; i < last; ++i) {
      std::fill(target + indptr[i], target + indptr[i + 1], static_cast<Local>(i));
    }
  }

  // Returns the edges of `targets` rows.
  SampledEdges<Local> take(Layout layout, int64_t targets) {
    fill_rows(targets, targets);
    if (layout == Layout::kCoo && room_ != count_) move(layout, count_);
    return {std::move(indptr_), std::move(edges_), std::move(edge_), targets, count_};
  }

 private:
  // Gives the rows before `first` their ends, and makes room for `last` rows.
  void fill_rows(int64_t first, int64_t last) {
    const bool empty = indptr_.data() == nullptr;
    int64_t* indptr = indptr_.reserve(last + 1, empty ? 0 : rows_ + 1);
    if (empty) indptr[0] = 0;
    for (; rows_ < first; ++rows_) indptr[rows_ + 1] = count_;
  }

  void move(Layout layout, int64_t room) {
    const bool coo = layout == Layout::kCoo;
    Buffer<Local> bigger;
    bigger.reserve(coo ? 2 * room : room);
    copy(bigger.data(), edges_.data());
    if (coo) copy(bigger.data() + room, edges_.data() + room_);
    edges_ = std::move(bigger);
    room_ = room;
  }

  void copy(Local* to, const Local* from) const {
    if (count_ > 0) std::memcpy(to, from, static_cast<size_t>(count_) * sizeof(Local));
  }

  Buffer<int64_t> indptr_;
  Buffer<Local> edges_;
  Buffer<int64_t> edge_;
  int64_t rows_ = 0, count_ = 0, room_ = 0;
};

}  // namespace pyg_batchgnn
