// The names of nodes within a minibatch: codes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/random.h"

namespace pyg_batchgnn {

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

}  // namespace pyg_batchgnn
