// The distinct nodes of several minibatches, in ascending order.
//
// The set has one bit per node of the graph and is kept between calls. Ascending order costs
// nothing and suits features on disk: a fetch group reads the table once, from front to back.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/allocation.h"
#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

class NodeSet {
 public:
  // Empties the set, for node ids in [0, num_nodes).
  void begin(int64_t num_nodes) {
    word_count_ = (num_nodes + 63) / 64;
    std::fill_n(words_.reserve(word_count_ + 1), word_count_, uint64_t{0});
  }

  // Must not be called from two threads at a time.
  void add(const int64_t* node, int64_t count) {
    constexpr int64_t kAhead = 32;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&words_.data()[node[i + kAhead] >> 6], 1);
      add(node[i]);
    }
  }
  void add(int64_t node) { words_.data()[node >> 6] |= bit(node); }

  // Returns the number of distinct nodes.
  int64_t size() const { return scan_set_bits(words_.data(), word_count_); }

  // Writes the distinct nodes in ascending order and prepares `rank`. `out`: [size() + 2].
  template <class T>
  void list(T* out) {
    list_set_bits(words_.data(), word_count_, before_.reserve(word_count_ + 1), out);
  }

  // Writes the position of each node in the list. Every node must have been added.
  void rank(const int64_t* node, int64_t count, int64_t* row) const {
    rank_bits(words_.data(), before_.data(), node, count, row);
  }
  int64_t rank(int64_t node) const {
    return before_.data()[node >> 6] + std::popcount(words_.data()[node >> 6] & (bit(node) - 1));
  }

 private:
  static uint64_t bit(int64_t node) { return uint64_t{1} << (node & 63); }

  Buffer<uint64_t> words_;
  Buffer<int64_t> before_;  // set bits before each word
  int64_t word_count_ = 0;
};

}  // namespace pyg_batchgnn
