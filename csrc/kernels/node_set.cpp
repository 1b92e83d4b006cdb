#include "kernels/node_set.h"

#include <cstring>

namespace pyg_batchgnn {
namespace {

constexpr int64_t kAhead = 32;

}  // namespace

void NodeSet::begin(int64_t num_nodes) {
  word_count_ = (num_nodes + 63) / 64;
  words_.reserve(word_count_ + 1);
  std::memset(words_.data(), 0, static_cast<size_t>(word_count_) * sizeof(uint64_t));
}

void NodeSet::add(const int64_t* node, int64_t count) {
  uint64_t* words = words_.data();
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(&words[node[i + kAhead] >> 6], 1);
    add(node[i]);
  }
}

int64_t NodeSet::size() const { return scan_set_bits(words_.data(), word_count_); }

void NodeSet::rank(const int64_t* node, int64_t count, int64_t* row) const {
  rank_bits(words_.data(), before_.data(), node, count, row);
}

}  // namespace pyg_batchgnn
