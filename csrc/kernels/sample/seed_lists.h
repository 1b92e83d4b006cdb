// The seeds of the minibatches that are sampled together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// Arrays are concatenated by minibatch, then by type.
struct SeedLists {
  const int64_t* node;
  const int64_t* ptr;   // [minibatches * types + 1]
  const uint64_t* key;  // [minibatches]
  int64_t minibatches;
  int64_t types;
  const int64_t* example = nullptr;   // as node, if anything is disjoint
  const int64_t* time = nullptr;      // as node, if anything has times
  const int64_t* excluded = nullptr;  // [5, excluded_count], see Seeds
  int64_t excluded_count = 0;

  // Returns the seeds of one minibatch. Fills `begins` with the begin of each type's seeds.
  Seeds of(int64_t minibatch, std::vector<int64_t>* begins) const {
    const int64_t* from = ptr + minibatch * types;
    begins->resize(static_cast<size_t>(types) + 1);
    for (size_t type = 0; type < begins->size(); ++type) (*begins)[type] = from[type] - from[0];
    Seeds seeds{node + from[0], begins->data(), key[minibatch]};
    if (example != nullptr) seeds.example = example + from[0];
    if (time != nullptr) seeds.time = time + from[0];
    seeds.excluded = excluded;
    seeds.excluded_stride = excluded_count;
    const auto [first, last] = std::equal_range(excluded, excluded + excluded_count, minibatch);
    seeds.excluded_begin = first - excluded;
    seeds.excluded_end = last - excluded;
    return seeds;
  }
};

// Sets the time of each example's seed and returns the number of examples, 1 if nothing is
// disjoint. Throws std::length_error if the examples have more nodes than 2^63, with `num_nodes` in
// each.
inline int64_t read_examples(const Seeds& seeds, int64_t count, int64_t num_nodes,
                             std::vector<int64_t>* latest) {
  latest->clear();
  if (seeds.example == nullptr) return 1;
  int64_t examples = 0;
  for (int64_t i = 0; i < count; ++i) examples = std::max(examples, seeds.example[i] + 1);
  if (num_nodes > 0 && examples > std::numeric_limits<int64_t>::max() / num_nodes) {
    throw std::length_error("the examples of a minibatch have more than 2^63 nodes; use smaller batches");
  }
  latest->assign(static_cast<size_t>(examples), 0);
  if (seeds.time == nullptr) return examples;
  for (int64_t i = 0; i < count; ++i) (*latest)[static_cast<size_t>(seeds.example[i])] = seeds.time[i];
  return examples;
}

}  // namespace pyg_batchgnn
