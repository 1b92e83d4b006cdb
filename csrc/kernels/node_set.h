// The distinct nodes of several minibatches, in ascending order.
//
// The set has one bit per node of the graph and is kept between calls. Ascending order costs
// nothing and suits features on disk: a fetch group reads the table once, from front to back.
#pragma once

#include <cstdint>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

class NodeSet {
 public:
  // Empties the set, for node ids in [0, num_nodes).
  void begin(int64_t num_nodes);

  // Must not be called from two threads at a time.
  void add(const int64_t* node, int64_t count);

  // Returns the number of distinct nodes.
  int64_t size() const;

  // Writes the distinct nodes in ascending order, size() of them, and prepares `rank`.
  void list(int64_t* out);

  // Writes the position of each node in the list. Every node must have been added.
  void rank(const int64_t* node, int64_t count, int64_t* row) const;

 private:
  Buffer<uint64_t> words_;
  Buffer<int64_t> before_;  // set bits before each word
  int64_t word_count_ = 0;
};

}  // namespace pyg_batchgnn
