// Blocks of destinations and of sources with pointers to the rows of their edges, for the inner
// loops of attention. The cut into blocks depends only on the graph.
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

// Cuts the rows of a CSR into blocks of a fixed number of rows, or of fewer rows if they have many
// entries.
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
  // The arrays belong to the slot. Its next block overwrites them.
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
