// Samples random typed graphs under all rules: times, weights, shares, examples, excluded pairs,
// induced subgraphs, and by budgets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/csc.h"
#include "kernels/parallel.h"
#include "kernels/sample/hgt.h"
#include "kernels/sample/sample.h"
#include "relay.h"

namespace pyg_batchgnn {

template <class Index>
class TypedRound {
 public:
  explicit TypedRound(Random& random, size_t minibatches = 9) : random_(random), minibatches_(minibatches) {}

  void run() {
    nodes_ = {1 + below(40), 1 + below(3), 1 + below(200)};
    for (Lists& lists : lists_) fill(lists);
    TypedGraph<Index> graph{nodes_, {}};
    const bool timed = below(2) == 0, weighted = below(2) == 0;
    for (Lists& lists : lists_) graph.relations.push_back(relation(lists, timed, weighted));
    for (int64_t time = 0; time < 2; ++time) {
      sample(graph, timed);
      sample_by_budgets(graph);
    }
  }

 private:
  struct Lists {
    int64_t source, target;
    std::vector<int64_t> indptr, time, positive;
    std::vector<Index> indices;
    std::vector<int32_t> edge_ids, position;
    std::vector<double> weight, sum;
    std::vector<uint64_t> zeros;
  };

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void fill(Lists& lists) {
    lists = Lists{below(3), below(3), {}, {}, {}, {}, {}, {}, {}, {}, {}};
    const int64_t edges = below(400), targets = nodes_[static_cast<size_t>(lists.target)];
    std::vector<int64_t> from, to;
    for (int64_t e = 0; e < edges; ++e) {
      from.push_back(below(nodes_[static_cast<size_t>(lists.source)]));
      to.push_back(below(1 + below(targets)));
      lists.time.push_back(below(20) ? below(20) : below(2) ? INT64_MIN : INT64_MAX);
      lists.weight.push_back(below(20) ? static_cast<double>(below(4)) : below(2) ? 5e-324 : 1e300);
    }
    const auto count = static_cast<size_t>(edges);
    lists.indptr.resize(static_cast<size_t>(targets) + 1);
    lists.indices.resize(count);
    lists.edge_ids.resize(count);
    lists.position.resize(count);
    lists.sum.resize(count);
    count_destinations(to.data(), edges, targets, lists.indptr.data());
    fill_csc(from.data(), to.data(), edges, targets, lists.indptr.data(), lists.indices.data(),
             lists.edge_ids.data());
    std::iota(lists.position.begin(), lists.position.end(), 0);
    for (int64_t v = 0; v < targets; ++v) {
      std::sort(lists.time.begin() + lists.indptr[static_cast<size_t>(v)],
                lists.time.begin() + lists.indptr[static_cast<size_t>(v) + 1]);
    }
    sum_lists(lists.indptr.data(), targets, lists.weight.data(), lists.sum.data());
    lists.positive = {0};
    for (const double weight : lists.weight) lists.positive.push_back(lists.positive.back() + (weight > 0));
  }

  Relation<Index> relation(Lists& lists, bool timed, bool weighted) {
    Relation<Index> out;
    out.edges = {lists.indptr.data(),
                 lists.indices.data(),
                 {below(2) == 0 ? lists.edge_ids.data() : nullptr, false},
                 nodes_[static_cast<size_t>(lists.target)]};
    out.source = lists.source;
    out.target = lists.target;
    out.digest = random_();
    const bool empty = lists.indices.empty();
    const int32_t* position = below(2) == 0 ? lists.position.data() : nullptr;
    if (timed && !empty) out.time = {lists.time.data(), {position, false}};
    if (weighted && !empty) {
      lists.zeros = lists_with_zeros(out.edges, lists.positive.data());
      const uint64_t* zeros = below(2) == 0 ? lists.zeros.data() : nullptr;
      out.weights = {lists.sum.data(), lists.weight.data(), lists.positive.data(), zeros};
    }
    return out;
  }

  void sample(const TypedGraph<Index>& graph, bool timed) {
    const int64_t hops = 1 + below(3);
    Plan plan{
        {}, below(2) == 0 ? Replacement::kWith : Replacement::kWithout, below(2) == 0, random_(), random_()};
    plan.hops = hops;
    const int64_t choices[] = {-1, 0, 1, 3, 20, 300};
    for (int64_t i = 0; i < hops * 4; ++i) {
      plan.fanouts.push_back(choices[below(6)]);
      plan.shares.push_back(below(4) == 0 ? 0.3 : 0.0);
    }
    plan.temporal = below(2) == 0 ? Temporal::kLast : Temporal::kUniform;
    plan.window = below(2) == 0 ? below(10) : -1;
    plan.subgraph = below(3) == 0 ? Subgraph::kInduced : Subgraph::kDirectional;
    bool disjoint = timed || below(2) == 0;
    if (!timed && below(3) == 0) {
      plan.labor = static_cast<Labor>(1 + below(3));
      plan.replacement = Replacement::kWithout;
      plan.subgraph = Subgraph::kDirectional;
      disjoint = false;
    }

    std::vector<Scratch<Index>> scratch(3);
    const SeedArrays arrays = random_seeds();
    const std::vector<int64_t> excluded = excluded_pairs_of(disjoint);
    const auto pairs = static_cast<int64_t>(excluded.size()) / 5;
    run_tasks(static_cast<int64_t>(minibatches_), 3, [&](int64_t task, int64_t slot) {
      const auto b = static_cast<size_t>(task);
      Seeds seeds{arrays.node[b].data(), arrays.end[b].data(), static_cast<uint64_t>(task)};
      if (disjoint) seeds.example = arrays.example[b].data();
      if (timed) seeds.time = arrays.time[b].data();
      seeds.excluded = excluded.data();
      seeds.excluded_stride = seeds.excluded_end = pairs;
      check(graph, sample_minibatch(graph, plan, seeds, scratch[static_cast<size_t>(slot)]));
    });
    const auto parts = static_cast<size_t>(1 + below(4));
    if (disjoint) {
      relay<Index, DisjointNodes>(graph, plan, parts, timed, random_);
    } else {
      relay<Index, SharedNodes>(graph, plan, parts, false, random_);
    }
  }

  void sample_by_budgets(const TypedGraph<Index>& graph) {
    const int64_t caps[] = {-1, 1, 3, 50}, choices[] = {-1, 0, 1, 5, 60};
    HgtPlan plan{
        {},        1 + below(3), caps[below(4)], {1, 2, 3}, by_digest(graph.relations), below(2) == 0,
        random_(), random_()};
    for (int64_t i = 0; i < plan.hops * 3; ++i) plan.samples.push_back(choices[below(5)]);
    std::vector<HgtScratch<Index>> scratch(3);
    const SeedArrays arrays = random_seeds();
    run_tasks(static_cast<int64_t>(minibatches_), 3, [&](int64_t task, int64_t slot) {
      const auto b = static_cast<size_t>(task);
      const Seeds seeds{arrays.node[b].data(), arrays.end[b].data(), static_cast<uint64_t>(task)};
      check(graph, sample_hgt(graph, plan, seeds, scratch[static_cast<size_t>(slot)]));
    });
  }

  // The seeds of the minibatches.
  struct SeedArrays {
    std::vector<std::vector<int64_t>> node, end, example, time;
  };

  SeedArrays random_seeds() {
    SeedArrays out;
    for (auto* one : {&out.node, &out.end, &out.example, &out.time}) one->resize(minibatches_);
    for (size_t b = 0; b < minibatches_; ++b) {
      out.end[b].push_back(0);
      for (const int64_t nodes : nodes_) {
        for (int64_t count = below(12); count > 0; --count) {
          out.node[b].push_back(below(nodes));
          out.example[b].push_back(below(6));
          out.time[b].push_back(below(20));
        }
        out.end[b].push_back(static_cast<int64_t>(out.node[b].size()));
      }
    }
    return out;
  }

  // A table of pairs, all for minibatch 0, in ascending order.
  std::vector<int64_t> excluded_pairs_of(bool disjoint) {
    std::vector<std::vector<int64_t>> rows;
    for (int64_t count = below(2) == 0 ? 60 : 0; count > 0; --count) {
      const int64_t relation = below(4);
      const Lists& lists = lists_[static_cast<size_t>(relation)];
      rows.push_back({0, relation, disjoint ? below(7) - 1 : -1,
                      below(nodes_[static_cast<size_t>(lists.target)]),
                      below(nodes_[static_cast<size_t>(lists.source)])});
    }
    std::sort(rows.begin(), rows.end());
    std::vector<int64_t> table;
    for (size_t column = 0; column < 5; ++column) {
      for (const auto& row : rows) table.push_back(row[column]);
    }
    return table;
  }

  // Local ids are those of sampled nodes, and the ends ascend.
  static void check(const TypedGraph<Index>& graph, SampledMinibatch sampled) {
    result(sampled);
    for (size_t number = 0; number < graph.relations.size(); ++number) {
      SampledEdges& edges = sampled.edges[number];
      const int64_t sources = sampled.nodes[static_cast<size_t>(graph.relations[number].source)].count;
      for (int64_t row = 0; row < edges.targets; ++row) {
        if (edges.indptr.data()[row] > edges.indptr.data()[row + 1]) std::abort();
      }
      if (edges.targets > 0 && edges.indptr.data()[edges.targets] != edges.count) std::abort();
      for (int64_t e = 0; e < edges.count; ++e) {
        if (edges.source.data()[e] < 0 || edges.source.data()[e] >= sources) std::abort();
      }
      edges.to_coo();
      const int64_t* const target = edges.coo.data() + edges.count;
      if (!std::is_sorted(target, target + edges.count)) std::abort();
    }
  }

  Random& random_;
  const size_t minibatches_;
  std::vector<int64_t> nodes_;
  Lists lists_[4];
};

}  // namespace pyg_batchgnn
