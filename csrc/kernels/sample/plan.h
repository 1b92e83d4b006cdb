// The plan by which minibatches are sampled, and the seeds of one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/random.h"
#include "kernels/sample/choose.h"

namespace pyg_batchgnn {

enum class Subgraph { kDirectional, kInduced };
enum class Temporal { kUniform, kLast };

// What the random words of sources are keyed by, where destinations share them (labor.h).
enum class Labor { kNone, kHop, kLayers, kEpoch };

// The number of neighbours to pick for a node: a count, or a share of the allowed ones.
struct Fanout {
  int64_t count = 0;   // kAllNeighbours for all
  double share = 0.0;  // in (0, 1]; 0: the count holds

  bool none() const { return count == 0 && share == 0.0; }
  int64_t of(int64_t allowed) const {
    if (share == 0.0 || allowed == 0) return count;
    // A product such as 0.1 * 30 may come out a little too large.
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(allowed) - 1e-9)));
  }
};

struct Plan {
  std::vector<int64_t> fanouts;  // by hop, from the seeds on, hops of relation 0 first
  Replacement replacement;
  bool edge_ids;  // returns input edge ids
  uint64_t seed;
  uint64_t epoch;
  int64_t hops = static_cast<int64_t>(fanouts.size());
  std::vector<double> shares = {};  // as fanouts; empty: counts only
  Temporal temporal = Temporal::kUniform;
  int64_t window = -1;  // allowed times go back this far from the seed's; -1: without end
  Subgraph subgraph = Subgraph::kDirectional;
  Labor labor = Labor::kNone;

  // Sets a rule by the name that `SamplingPlan.rules` in sample/sampling_plan.py gives it.
  void set(const std::string& name, int64_t value) {
    const std::unordered_map<std::string, std::function<void()>> rules = {
        {"replace", [&] { replacement = static_cast<Replacement>(value); }},
        {"edge_ids", [&] { edge_ids = value != 0; }},
        {"last", [&] { temporal = static_cast<Temporal>(value); }},
        {"window", [&] { window = value; }},
        {"induced", [&] { subgraph = static_cast<Subgraph>(value); }},
        {"labor", [&] { labor = static_cast<Labor>(value); }},
    };
    rules.at(name)();
  }

  // Returns the key of the choices of a minibatch in a hop.
  uint64_t key(uint64_t minibatch, int64_t hop) const {
    const uint64_t of_epoch = epoch_key(seed, epoch), of_minibatch = fold(of_epoch, minibatch);
    if (labor == Labor::kEpoch) return fold(of_epoch, kLabor);
    if (labor == Labor::kLayers) return fold(of_minibatch, kLabor);
    const uint64_t of_hop = fold(of_minibatch, static_cast<uint64_t>(hop));
    return labor == Labor::kHop ? fold(of_hop, kLabor) : of_hop;
  }

  Fanout fanout(int64_t relation, int64_t hop) const {
    const auto at = static_cast<size_t>(relation * hops + hop);
    return {fanouts[at], shares.empty() ? 0.0 : shares[at]};
  }
};

// The seeds of one minibatch. Types follow the order of the graph.
struct Seeds {
  const int64_t* node;               // [ptr[types]] valid ids within their types
  const int64_t* ptr;                // [types + 1] the begin of each type's seeds, from 0
  uint64_t key;                      // the digest of the seeds
  const int64_t* example = nullptr;  // as node, numbers of examples; null: nothing is disjoint
  const int64_t* time = nullptr;     // as node, the time of each seed's example
  // [5, excluded_stride] minibatch, relation, example, target and source of `ExcludedPairs`, in
  // ascending order; those of this minibatch are the columns `excluded_begin` to `excluded_end`.
  const int64_t* excluded = nullptr;
  int64_t excluded_stride = 0, excluded_begin = 0, excluded_end = 0;
};

// The seeds of minibatches. Arrays are concatenated by minibatch, then by type.
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
// disjoint. Throws std::length_error if examples of `num_nodes` each have more than 2^63.
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
