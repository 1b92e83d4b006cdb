// Relays between ranks that are all here: what they sample is compared with sampling from the whole
// graph, and messages are spoilt on their way.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "inputs.h"
#include "kernels/sample/sample.h"
#include "parts.h"

namespace pyg_batchgnn {

// Adds a minibatch to the digest.
inline void result(const SampledMinibatch& sampled) {
  for (const SampledNodes& nodes : sampled.nodes) result(nodes.node.data(), nodes.count);
  for (const SampledEdges& edges : sampled.edges) {
    if (edges.targets > 0) result(edges.indptr.data(), edges.targets + 1);
    result(edges.source.data(), edges.count);
    if (edges.edge.data() != nullptr) result(edges.edge.data(), edges.count);
  }
}

template <class Index, class Naming>
class Ranks {
 public:
  Ranks(const TypedGraph<Index>& graph, Plan plan, size_t parts, bool timed, Random& random)
      : graph_(graph),
        plan_(std::move(plan)),
        random_(random),
        parts_(graph, parts, random),
        shape_{static_cast<int64_t>(parts_.types()), Naming::kDisjoint, timed, true},
        seeds_(parts) {
    for (OwnSeeds& seeds : seeds_) draw(seeds);
  }

  void equal_to_one_process() {
    begin();
    const bool induced = plan_.subgraph == Subgraph::kInduced;
    for (int64_t hop = 0; hop < plan_.hops + (induced ? 1 : 0); ++hop) run(hop, false);
    for (size_t rank = 0; rank < relays_.size(); ++rank) {
      const std::vector<SampledMinibatch> sampled = relays_[rank].take();
      for (size_t b = 0; b < sampled.size(); ++b) {
        std::vector<int64_t> begins;
        const Seeds seeds = lists(seeds_[rank], seeds_[rank].node, seeds_[rank].excluded)
                                .of(static_cast<int64_t>(b), &begins);
        same(sampled[b], sample_minibatch(graph_, plan_, seeds, scratch_));
      }
    }
  }

  void spoilt() {
    begin();
    run(0, true);
  }

 private:
  struct OwnSeeds {
    std::vector<int64_t> node, internal, ptr{0}, example, time;
    std::vector<uint64_t> key;
    std::vector<int64_t> excluded, internal_excluded;
  };

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void draw(OwnSeeds& seeds) {
    std::vector<std::vector<int64_t>> pairs, internal;
    const int64_t minibatches = below(4);
    for (int64_t b = 0; b < minibatches; ++b) {
      seeds.key.push_back(random_());
      for (size_t type = 0; type < parts_.types(); ++type) {
        const int64_t nodes = graph_.num_nodes[type];
        for (int64_t count = nodes > 0 ? below(15) : 0; count > 0; --count) {
          seeds.node.push_back(below(nodes));
          seeds.internal.push_back(parts_.internal(static_cast<int64_t>(type), seeds.node.back()));
          seeds.example.push_back(below(6));
          seeds.time.push_back(below(20));
        }
        seeds.ptr.push_back(static_cast<int64_t>(seeds.node.size()));
      }
      for (int64_t count = below(2) * 40; count > 0; --count) {
        const int64_t relation = below(static_cast<int64_t>(graph_.relations.size()));
        const Relation<Index>& edges = graph_.relations[static_cast<size_t>(relation)];
        const int64_t target = below(graph_.num_nodes[static_cast<size_t>(edges.target)]);
        const int64_t source = below(graph_.num_nodes[static_cast<size_t>(edges.source)]);
        const int64_t example = Naming::kDisjoint ? below(7) - 1 : -1;
        pairs.push_back({b, relation, example, target, source});
        internal.push_back({b, relation, example, parts_.internal(edges.target, target),
                            parts_.internal(edges.source, source)});
      }
    }
    seeds.excluded = table(std::move(pairs));
    seeds.internal_excluded = table(std::move(internal));
  }

  static std::vector<int64_t> table(std::vector<std::vector<int64_t>> rows) {
    std::sort(rows.begin(), rows.end());
    std::vector<int64_t> out;
    for (size_t column = 0; column < 5; ++column) {
      for (const auto& row : rows) out.push_back(row[column]);
    }
    return out;
  }

  SeedLists lists(const OwnSeeds& seeds, const std::vector<int64_t>& node,
                  const std::vector<int64_t>& excluded) const {
    SeedLists lists{node.data(), seeds.ptr.data(), seeds.key.data(), static_cast<int64_t>(seeds.key.size()),
                    shape_.types};
    if (Naming::kDisjoint) lists.example = seeds.example.data();
    if (shape_.timed) lists.time = seeds.time.data();
    lists.excluded = excluded.data();
    lists.excluded_count = static_cast<int64_t>(excluded.size()) / 5;
    return lists;
  }

  void begin() {
    relays_.clear();
    for (size_t rank = 0; rank < parts_.parts(); ++rank) {
      const OwnSeeds& seeds = seeds_[rank];
      relays_.emplace_back(plan_, parts_.book(rank), lists(seeds, seeds.internal, seeds.internal_excluded),
                           shape_);
    }
  }

  Answers answers(size_t owner, const std::vector<Index>& words, std::vector<int64_t> counts, int64_t hop) {
    return answer<Index>(parts_.part(owner), plan_, hop, {words.data(), std::move(counts), shape_}, 3,
                         scratches_);
  }

  void run(int64_t hop, bool spoil) {
    const size_t ranks = parts_.parts();
    std::vector<Questions<Index>> asked;
    for (auto& relay : relays_) asked.push_back(relay.ask(2));
    // What each rank is answered by the others, by owner.
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
        const uint64_t word = below(2) ? random_() : uint64_t{1} << 63;
        words[static_cast<size_t>(below(static_cast<int64_t>(words.size())))] = static_cast<Index>(word);
      }
      const Answers out = answers(owner, words, counts, hop);
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
      const Answers own = answers(rank, words, {static_cast<int64_t>(words.size())}, hop);
      auto& mine = replies[rank];
      if (spoil && !mine.empty()) {
        mine[static_cast<size_t>(below(static_cast<int64_t>(mine.size())))] = static_cast<int64_t>(random_());
      }
      const Fault fault =
          relays_[rank].merge({mine.data(), lengths[rank], own.words.data(), own.words_to[0]}, 2, scratches_);
      if (fault && !spoil) std::abort();
    }
  }

  void same(const SampledMinibatch& a, const SampledMinibatch& b) const {
    bool equal = a.nodes_per_hop == b.nodes_per_hop && a.edges_per_hop == b.edges_per_hop;
    for (size_t type = 0; type < b.nodes.size(); ++type) {
      const SampledNodes &x = a.nodes[type], &y = b.nodes[type];
      equal = equal && x.count == y.count;
      for (int64_t i = 0; equal && i < y.count; ++i) {
        equal = parts_.original(x.node.data()[i]) == y.node.data()[i];
      }
      equal = equal && (y.example.data() == nullptr || equal_data(x.example, y.example, y.count));
    }
    for (size_t relation = 0; equal && relation < b.edges.size(); ++relation) {
      const SampledEdges &x = a.edges[relation], &y = b.edges[relation];
      equal = x.targets == y.targets && x.count == y.count &&
              (x.targets == 0 || equal_data(x.indptr, y.indptr, x.targets + 1)) &&
              equal_data(x.source, y.source, x.count) &&
              (x.edge.data() == nullptr || equal_data(x.edge, y.edge, x.count));
    }
    if (!equal) std::abort();
  }

  template <class T>
  static bool equal_data(const Buffer<T>& a, const Buffer<T>& b, int64_t count) {
    return std::equal(a.data(), a.data() + count, b.data());
  }

  const TypedGraph<Index>& graph_;
  const Plan plan_;
  Random& random_;
  const Parts<Index> parts_;
  const QuestionShape shape_;
  std::vector<OwnSeeds> seeds_;  // by rank
  std::vector<Relay<Index, Naming>> relays_;
  Scratch<Index> scratch_;
  ObjectPool<Scratch<Index>> scratches_;
};

// Samples over up to `parts` parts, and with spoilt messages.
template <class Index, class Naming>
void relay(const TypedGraph<Index>& graph, const Plan& plan, size_t parts, bool timed,
           Random& random) {
  Ranks<Index, Naming> ranks(graph, plan, parts, timed, random);
  ranks.equal_to_one_process();
  ranks.spoilt();
}

}  // namespace pyg_batchgnn
