// Relays between ranks that are all here: what they sample is compared with sampling from the whole
// graph, and messages are spoilt on their way.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/relay/answer.h"
#include "kernels/relay/relay.h"

namespace pyg_batchgnn {

template <class Index, class Local>
class Ranks {
 public:
  // Each part is a range of the graph's nodes, so that ids and original ids are the same.
  Ranks(const Csc<Index>& graph, Plan plan, Layout layout, std::vector<int64_t> offsets,
        std::mt19937_64* random)
      : graph_(graph),
        plan_(std::move(plan)),
        layout_(layout),
        offsets_(std::move(offsets)),
        random_(*random) {
    for (int64_t node = 0; node < graph.num_nodes; ++node) names_.push_back(node);
    for (int64_t rank = 0; rank < parts(); ++rank) {
      seeds_.emplace_back();
      ptrs_.push_back({0});
      for (int64_t b = below(4); b > 0; --b) {
        for (int64_t count = below(20); count > 0; --count) seeds_.back().push_back(below(graph.num_nodes));
        ptrs_.back().push_back(static_cast<int64_t>(seeds_.back().size()));
      }
      indptrs_.emplace_back(graph.indptr + first(rank), graph.indptr + first(rank + 1) + 1);
      for (int64_t& begin : indptrs_.back()) begin -= graph.indptr[first(rank)];
    }
  }

  void equal_to_one_process() {
    begin();
    for (const int64_t fanout : plan_.fanouts) {
      hop(fanout, false);
    }
    for (size_t rank = 0; rank < relays_.size(); ++rank) {
      std::vector<Sampled<Local>> sampled = relays_[rank].take();
      for (size_t b = 0; b < sampled.size(); ++b) {
        const int64_t from = ptrs_[rank][b];
        const int64_t count = ptrs_[rank][b + 1] - from;
        const TypedGraph<Index> graph{{graph_.num_nodes}, {Relation<Index>{graph_}}};
        const int64_t* seeds = seeds_[rank].data() + from;
        const int64_t ends[] = {0, count};
        const SampledMinibatch<Local> alone = sample_minibatch<Index, Local>(
            graph, plan_, {seeds, ends, minibatch_key(seeds, count)}, layout_, scratch_);
        same(sampled[b], alone);
      }
    }
  }

  void spoilt() {
    begin();
    hop(plan_.fanouts[0], true);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t parts() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t first(int64_t rank) const { return offsets_[static_cast<size_t>(rank)]; }

  void begin() {
    relays_.clear();
    for (int64_t rank = 0; rank < parts(); ++rank) {
      const auto& seeds = seeds_[static_cast<size_t>(rank)];
      const auto& ptr = ptrs_[static_cast<size_t>(rank)];
      relays_.emplace_back(
          plan_, layout_, Book{offsets_, rank, graph_.indptr[graph_.num_nodes]},
          SeedLists{seeds.data(), seeds.data(), ptr.data(), static_cast<int64_t>(ptr.size()) - 1});
    }
  }

  Answers answers(int64_t rank, const std::vector<Index>& words, std::vector<int64_t> counts,
                  int64_t fanout) {
    const int64_t begin = graph_.indptr[first(rank)];
    const auto* ids = static_cast<const int32_t*>(graph_.edge_ids) + begin;
    const OwnPart<Index> part{{indptrs_[static_cast<size_t>(rank)].data(), graph_.indices + begin, ids, false,
                               first(rank + 1) - first(rank)},
                              names_.data() + first(rank),
                              first(rank)};
    const AnswerShape shape(fanout, graph_.indptr[graph_.num_nodes], plan_.edge_ids, sizeof(Index));
    return answer<Index>(part, {words.data(), std::move(counts)}, fanout, plan_.replacement, shape, 3,
                         scratches_);
  }

  void hop(int64_t fanout, bool spoil) {
    const auto ranks = static_cast<size_t>(parts());
    std::vector<Questions<Index>> asked;
    for (auto& relay : relays_) asked.push_back(relay.ask(2));
    // to[o]: what owner o is asked, by rank; then what it answers.
    std::vector<std::vector<int64_t>> replies(ranks), lengths(ranks, std::vector<int64_t>(ranks));
    for (size_t owner = 0; owner < ranks; ++owner) {
      std::vector<Index> words;
      std::vector<int64_t> counts;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const Index* message = asked[rank].words.data();
        for (size_t before = 0; before < owner; ++before) message += asked[rank].words_to[before];
        words.insert(words.end(), message, message + asked[rank].words_to[owner]);
        counts.push_back(asked[rank].words_to[owner]);
      }
      if (spoil && !words.empty()) {
        words[static_cast<size_t>(below(static_cast<int64_t>(words.size())))] = static_cast<Index>(random_());
      }
      const Answers out = answers(static_cast<int64_t>(owner), words, counts, fanout);
      if (out.fault && !spoil) std::abort();
      if (out.fault) continue;
      const int64_t* message = out.words.data();
      for (size_t rank = 0; rank < ranks; ++rank) {
        replies[rank].insert(replies[rank].end(), message, message + out.words_to[rank]);
        lengths[rank][owner] = out.words_to[rank];
        message += out.words_to[rank];
      }
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Index> words(asked[rank].own.data(), asked[rank].own.data() + asked[rank].own_words);
      const Answers own =
          answers(static_cast<int64_t>(rank), words, {static_cast<int64_t>(words.size())}, fanout);
      auto& mine = replies[rank];
      if (spoil && !mine.empty()) {
        mine[static_cast<size_t>(below(static_cast<int64_t>(mine.size())))] = static_cast<int64_t>(random_());
      }
      const Fault fault =
          relays_[rank].merge({mine.data(), lengths[rank], own.words.data(), own.words_to[0]}, 2, scratches_);
      if (fault && !spoil) std::abort();
    }
  }

  static void same(const Sampled<Local>& a, const SampledMinibatch<Local>& b) {
    const SampledEdges<Local>&x = a.edges, &y = b.edges[0];
    const bool equal = a.nodes_per_hop == b.nodes_per_hop && a.edges_per_hop == b.edges_per_hop &&
                       a.nodes == b.nodes[0].count && x.targets == y.targets && x.count == y.count &&
                       equal_data(a.node, b.nodes[0].node, a.nodes) &&
                       (x.targets == 0 || equal_data(x.indptr, y.indptr, x.targets + 1)) &&
                       equal_data(x.edges, y.edges, x.count) &&
                       (x.edge.data() == nullptr || equal_data(x.edge, y.edge, x.count));
    if (!equal) std::abort();
  }

  template <class T>
  static bool equal_data(const Buffer<T>& a, const Buffer<T>& b, int64_t count) {
    return std::equal(a.data(), a.data() + count, b.data());
  }

  const Csc<Index>& graph_;
  const Plan plan_;
  const Layout layout_;
  const std::vector<int64_t> offsets_;
  std::mt19937_64& random_;
  std::vector<int64_t> names_;
  std::vector<std::vector<int64_t>> seeds_, ptrs_, indptrs_;  // by rank
  std::vector<Relay<Index, Local>> relays_;
  Scratch<Index> scratch_;
  ObjectPool<Scratch<Index>> scratches_;
};

}  // namespace pyg_batchgnn
