#include "kernels/sample/sample.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/random.h"
#include "kernels/sample/between.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/plan.h"
#include "kernels/sample/rules.h"

namespace pyg_batchgnn {
namespace {

// The traversal: hop by hop, relation by relation, from the seeds against the edges.

// One relation in one hop: counts the picks of the frontier, scans, and fills the edges.
template <class Index, class Id, class Naming, class Rule>
class Expansion {
 public:
  Expansion(const Relation<Index>& relation, Naming targets, int64_t source_nodes, const Nodes<Id>& frontier,
            Nodes<Id>& sources, Edges& out, NodeMap<Id>& local, Scratch<Index>& scratch)
      : relation_(relation),
        targets_(targets),
        source_nodes_(source_nodes),
        frontier_(frontier),
        sources_(sources),
        out_(out),
        local_(local),
        scratch_(scratch) {}

  // Returns the number of edges.
  int64_t run(Rule& rule, uint64_t key, bool edge_ids, bool last_hop) {
    const int64_t before = out_.count();
    count_picks(rule);
    sources_.make_room(out_.indptr()[frontier_.last()] - before);
    out_.make_room(edge_ids, last_hop);
    fill(rule, key, edge_ids);
    if (edge_ids && relation_.edges.edge_ids) {
      int64_t* edge = out_.edge() + before;
      translate_edge_ids(relation_.edges, edge, out_.count() - before, edge);
    }
    return out_.count() - before;
  }

 private:
  // Count and scan: measures the list of each target and finds the place of its edges.
  void count_picks(Rule& rule) {
    const int64_t first = frontier_.first(), last = frontier_.last();
    const int64_t* code = frontier_.code();
    int64_t* indptr = out_.open_hop(first, last);
    int64_t total = indptr[first];
    const int64_t count = last - first;
    const auto target = [&](int64_t i) { return targets_.target(code[first + i]); };
    measure_lists(rule, relation_.edges.indptr, count, count, target, [&](int64_t i, int64_t picks) {
      total += picks;
      indptr[first + i + 1] = total;
    });
  }

  // Handles targets in groups. The steps of two groups alternate: what one step prefetches for the
  // next group comes from memory while a step of this group works.
  void fill(Rule& rule, uint64_t key, bool edge_ids) {
    const int64_t first = frontier_.first();
    const int64_t *code = frontier_.code() + first, *indptr = out_.indptr() + first;
    const auto key_of = [&](int64_t i) { return targets_.key(key, code[i]); };
    const auto picks = [&](int64_t i) { return indptr[i + 1] - indptr[i]; };
    ListGroup next = group_at(0, edge_ids);
    touch_lists(rule, next, picks);
    guess_picks(rule, next, key_of, picks);
    improve_guesses(rule, next, picks);
    while (next.first < next.last) {
      const ListGroup group = next;
      make_picks(rule, group, key_of, picks);
      find_offsets(group);
      next = group_at(group.last, edge_ids);
      touch_lists(rule, next, picks);
      const int64_t last_block = read_but_last_block(group);
      read(group, last_block, group.picks - last_block);
      guess_picks(rule, next, key_of, picks);
      relabel(group.picks - last_block);
      improve_guesses(rule, next, picks);
    }
  }

  // Returns the group of about kBlock picks whose lists begin with the i-th of the frontier. One
  // long adjacency list is a group of its own. After the last list the group is empty.
  ListGroup group_at(int64_t i, bool edge_ids) {
    const int64_t first = frontier_.first(), count = frontier_.last() - first;
    const int64_t* indptr = out_.indptr() + first;
    int64_t last = std::min(i + 1, count);
    while (last < count && indptr[last + 1] - indptr[i] <= kBlock) ++last;
    const int64_t picks = indptr[last] - indptr[i];
    PickBuffers& buffers = scratch_.groups[turn_];
    turn_ = 1 - turn_;
    int64_t* position = edge_ids ? out_.edge() + indptr[i] : buffers.position.reserve(picks);
    return {i, last, picks, position, buffers.drawn.reserve(picks)};
  }

  // In disjoint sampling the sources of a group belong to the examples of its targets.
  void find_offsets(const ListGroup& group) {
    if constexpr (Naming::kDisjoint) {
      const int64_t* code = frontier_.code() + frontier_.first();
      const int64_t* indptr = out_.indptr() + frontier_.first();
      uint64_t* next = scratch_.offset.reserve(group.picks);
      for (int64_t i = group.first; i < group.last; ++i) {
        const auto of = static_cast<uint64_t>(targets_.target(code[i]).example * source_nodes_);
        next = std::fill_n(next, indptr[i + 1] - indptr[i], of);
      }
    }
  }

  // Looks up all blocks of a long group but the last one. Returns where that begins.
  int64_t read_but_last_block(const ListGroup& group) {
    int64_t done = 0;
    for (; done + kBlock < group.picks; done += kBlock) {
      read(group, done, kBlock);
      relabel(kBlock);
    }
    return done;
  }

  // Reads the sources of `count` picks, at most kBlock.
  void read(const ListGroup& group, int64_t begin, int64_t count) {
    const Index* indices = relation_.edges.indices;
    sources_.prepare(local_, count);
    for (int64_t e = 0; e < count; ++e) {
      source_[e] = static_cast<Id>(indices[group.position[begin + e]]);
      if constexpr (Naming::kDisjoint) source_[e] += static_cast<Id>(scratch_.offset.data()[begin + e]);
      local_.prefetch(source_[e]);
    }
  }

  // Finds or assigns the local ids of the sources that were read.
  void relabel(int64_t count) {
    sources_.relabel(local_, source_, count, out_.next());
    out_.append(count);
  }

  const Relation<Index>& relation_;
  const Naming targets_;
  const int64_t source_nodes_;
  const Nodes<Id>& frontier_;
  Nodes<Id>& sources_;
  Edges& out_;
  NodeMap<Id>& local_;
  Scratch<Index>& scratch_;
  Id source_[kBlock];  // of the picks that are looked up
  size_t turn_ = 0;    // the buffers of the next group
};

template <class Index, class Id, class Naming>
class Sampler {
 public:
  Sampler(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds,
          std::vector<NodeMap<Id>>& local, Scratch<Index>& scratch)
      : graph_(graph),
        plan_(plan),
        seeds_(seeds),
        local_(local),
        scratch_(scratch),
        growth_(graph.num_nodes.size(), graph.relations.size(), plan.hops) {
    if (local_.size() < growth_.types()) local_.resize(growth_.types());
  }

  SampledMinibatch run(int64_t examples) {
    take_seeds(examples);
    for (int64_t hop = 0; hop < plan_.hops; ++hop) {
      const uint64_t key = plan_.key(seeds_.key, hop);
      for (size_t relation = 0; relation < growth_.relations(); ++relation) expand(relation, hop, key);
      growth_.close_hop(hop);
    }
    for (size_t relation = 0; relation < growth_.relations(); ++relation) take_edges(relation);
    return growth_.take([&](size_t type) { return naming(type); });
  }

 private:
  Naming naming(size_t type) const { return Naming(graph_.num_nodes[type]); }

  void take_seeds(int64_t examples) {
    for (size_t type = 0; type < growth_.types(); ++type) {
      const int64_t begin = seeds_.ptr[type], count = seeds_.ptr[type + 1] - begin;
      const int64_t* example = Naming::kDisjoint ? seeds_.example + begin : nullptr;
      growth_.take_seeds(type, naming(type), seeds_.node + begin, example, count,
                         examples * graph_.num_nodes[type]);
      growth_.nodes(type).enter(local_[type]);
    }
  }

  void expand(size_t number, int64_t hop, uint64_t key) {
    const Relation<Index>& relation = graph_.relations[number];
    const Nodes<Id>& frontier = growth_.nodes(static_cast<size_t>(relation.target));
    if (frontier.first() == frontier.last()) return;
    const Fanout fanout = plan_.fanout(static_cast<int64_t>(number), hop);
    if (fanout.none()) return;
    key = graph_.key(relation, plan_.labor != Labor::kNone, key);
    with_rule(relation, plan_, fanout, scratch_.latest.data(),
              excluded_pairs(seeds_, static_cast<int64_t>(number)), key, scratch_,
              [&](auto& rule) { growth_.count_edges(number, hop, expand_by(rule, number, hop, key)); });
  }

  template <class Rule>
  int64_t expand_by(Rule& rule, size_t number, int64_t hop, uint64_t key) {
    const Relation<Index>& relation = graph_.relations[number];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    Expansion<Index, Id, Naming, Rule> expansion(relation, naming(target), graph_.num_nodes[source],
                                                 growth_.nodes(target), growth_.nodes(source),
                                                 growth_.edges(number), local_[source], scratch_);
    return expansion.run(rule, key, plan_.edge_ids, hop + 1 == plan_.hops);
  }

  void take_edges(size_t number) {
    const Relation<Index>& relation = graph_.relations[number];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    const Nodes<Id>& targets = growth_.nodes(target);
    if (plan_.subgraph == Subgraph::kDirectional) {
      growth_.take_edges(number, targets.first());
      return;
    }
    if (targets.count() == 0) return;
    AllowedEdges<Index> allowed(relation, plan_.window, scratch_.latest.data(),
                                excluded_pairs(seeds_, static_cast<int64_t>(number)), scratch_.listed);
    growth_.edges(number) = induced_edges(relation, naming(target), graph_.num_nodes[source], targets,
                                          local_[source], allowed, plan_.edge_ids);
    growth_.take_edges(number, targets.count());
  }

  const TypedGraph<Index>& graph_;
  const Plan& plan_;
  const Seeds& seeds_;
  std::vector<NodeMap<Id>>& local_;
  Scratch<Index>& scratch_;
  Growth<Id, Naming> growth_;
};

}  // namespace

template <class Index>
SampledMinibatch sample_minibatch(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds,
                                  Scratch<Index>& scratch) {
  const int64_t most = *std::max_element(graph.num_nodes.begin(), graph.num_nodes.end());
  const int64_t examples = read_examples(seeds, seeds.ptr[graph.num_nodes.size()], most, &scratch.latest);
  if (seeds.example == nullptr) {
    using OneSampler = Sampler<Index, MapId<Index>, SharedNodes>;
    return OneSampler(graph, plan, seeds, scratch.local, scratch).run(examples);
  }
  return Sampler<Index, uint64_t, DisjointNodes>(graph, plan, seeds, scratch.disjoint, scratch).run(examples);
}

template SampledMinibatch sample_minibatch(const TypedGraph<int32_t>&, const Plan&, const Seeds&,
                                           Scratch<int32_t>&);
template SampledMinibatch sample_minibatch(const TypedGraph<int64_t>&, const Plan&, const Seeds&,
                                           Scratch<int64_t>&);

}  // namespace pyg_batchgnn
