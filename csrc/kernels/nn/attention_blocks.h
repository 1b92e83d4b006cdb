// Blocks of destinations and of sources, with their edges written out as pointers to rows: what the inner
// loops of attention walk over. Where a block begins depends on the graph alone.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/dropout.h"
#include "kernels/nn/attention.h"
#include "kernels/simd/attention.h"

namespace pyg_batchgnn {

inline int64_t first_slot(const AttentionEdges& edges, int64_t target) {
  const int64_t loops = edges.loops < 0 ? 0 : edges.loops;
  return edges.indptr[target] + (target < loops ? target : loops);
}

// Consecutive rows of a CSR in blocks: so many rows, or fewer where they have many entries.
class RowBlocks {
 public:
  RowBlocks(const int64_t* ptr, int64_t rows);

  int64_t count() const { return count_; }
  int64_t begin(int64_t block) const { return first_.data()[block]; }
  int64_t end(int64_t block) const { return first_.data()[block + 1]; }

 private:
  Buffer<int64_t> first_;
  int64_t count_ = 0;
};

class TargetBlocks {
 public:
  TargetBlocks(const AttentionInput& input, int64_t threads);

  int64_t count() const { return blocks_.count(); }
  // The arrays are the slot's and are overwritten by its next block.
  AttentionBlock make(int64_t block, int64_t slot);

 private:
  struct Lists {
    Buffer<int64_t> begin, slots;
    Buffer<const char*> rows, self;
    Buffer<int32_t> place;
    Buffer<uint8_t> keep;
    Buffer<char> scratch;
  };

  const char* row(int64_t source) const;
  template <class Index>
  int64_t list_edges(const Index* indices, int64_t first, int64_t last, Lists& lists) const;
  void list_kept(int64_t first, int64_t last, Lists& lists) const;

  const AttentionInput& input_;
  RowBlocks blocks_;
  std::vector<Lists> lists_;  // of each slot
};

class SourceBlocks {
 public:
  // pairs: [slots, 2, heads], as in AttentionBackward.
  SourceBlocks(const AttentionInput& input, const AttentionUpstream& upstream,
               const AttentionTranspose& transpose, const void* pairs, int64_t threads);

  int64_t count() const { return blocks_.count(); }
  AttentionSources make(int64_t block, int64_t slot);

 private:
  struct Lists {
    Buffer<int64_t> begin;
    Buffer<const char*> grads;
    Buffer<const void*> pairs;
    Buffer<char> scratch;
  };

  void add(int64_t target, int64_t slot, int64_t at, Lists& lists) const;

  const AttentionInput& input_;
  const AttentionTranspose& transpose_;
  const char* grad_;
  const char* pairs_;
  int64_t grad_bytes_, pair_bytes_;  // of a destination, of a slot
  RowBlocks blocks_;
  std::vector<Lists> lists_;
};

}  // namespace pyg_batchgnn
