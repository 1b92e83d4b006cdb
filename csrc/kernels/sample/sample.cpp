#include "kernels/sample/sample.h"

#include <limits>
#include <stdexcept>

#include "kernels/sample/traversal.h"

namespace pyg_batchgnn {
namespace {

template <class Index, class Local, class Id, class Naming>
class Sampler {
 public:
  Sampler(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds, Layout layout,
          std::vector<NodeMap<Id>>& local, Scratch<Index>& scratch)
      : graph_(graph),
        plan_(plan),
        seeds_(seeds),
        layout_(layout),
        local_(local),
        scratch_(scratch),
        nodes_(graph.num_nodes.size()),
        edges_(graph.relations.size()) {
    if (local_.size() < nodes_.size()) local_.resize(nodes_.size());
    out_.nodes_per_hop.resize(nodes_.size() * static_cast<size_t>(plan.hops + 1));
    out_.edges_per_hop.resize(edges_.size() * static_cast<size_t>(plan.hops));
  }

  SampledMinibatch<Local> run(int64_t examples) {
    take_seeds(examples);
    for (int64_t hop = 0; hop < plan_.hops; ++hop) {
      const uint64_t key = hop_key(plan_.seed, plan_.epoch, seeds_.key, static_cast<uint64_t>(hop));
      for (size_t relation = 0; relation < edges_.size(); ++relation) expand(relation, hop, key);
      for (size_t type = 0; type < nodes_.size(); ++type) found(type, hop + 1) = nodes_[type].close_hop();
    }
    return take();
  }

 private:
  int64_t& found(size_t type, int64_t hop) {
    return out_.nodes_per_hop[type * static_cast<size_t>(plan_.hops + 1) + static_cast<size_t>(hop)];
  }

  void take_seeds(int64_t examples) {
    std::vector<int64_t> code;
    for (size_t type = 0; type < nodes_.size(); ++type) {
      const int64_t begin = seeds_.ptr[type], count = seeds_.ptr[type + 1] - begin;
      const int64_t num_nodes = graph_.num_nodes[type];
      const int64_t* node = seeds_.node + begin;
      if constexpr (Naming::kDisjoint) {
        code.resize(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
          code[static_cast<size_t>(i)] = seeds_.example[begin + i] * num_nodes + node[i];
        }
        node = code.data();
      }
      nodes_[type].take_seeds(node, count, examples * num_nodes);
      nodes_[type].enter(local_[type]);
      found(type, 0) = count;
    }
  }

  void expand(size_t number, int64_t hop, uint64_t key) {
    const Relation<Index>& relation = graph_.relations[number];
    const Nodes<Id>& frontier = nodes_[static_cast<size_t>(relation.target)];
    if (frontier.first() == frontier.last()) return;
    const Fanout fanout = plan_.fanout(static_cast<int64_t>(number), hop);
    if (fanout.none()) return;
    if (!graph_.plain()) key = fold(key, relation.digest);
    const ExcludedPairs excluded = excluded_pairs(seeds_, static_cast<int64_t>(number));
    const bool full = fanout.share != 0.0 || relation.time.time != nullptr ||
                      relation.weights.sum != nullptr || !excluded.empty();
    int64_t& edges = out_.edges_per_hop[number * static_cast<size_t>(plan_.hops) + static_cast<size_t>(hop)];
    if (full) {
      FullRule<Index> rule(relation, plan_, fanout, excluded, scratch_);
      edges = expand_by(rule, number, hop, key);
    } else {
      PlainRule<Index> rule(relation.edges, fanout, plan_.replacement, scratch_);
      edges = expand_by(rule, number, hop, key);
    }
  }

  template <class Rule>
  int64_t expand_by(Rule& rule, size_t number, int64_t hop, uint64_t key) {
    const Relation<Index>& relation = graph_.relations[number];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    Expansion<Index, Local, Id, Naming, Rule> expansion(
        relation, Naming(graph_.num_nodes[target]), graph_.num_nodes[source], nodes_[target], nodes_[source],
        edges_[number], local_[source], scratch_);
    return expansion.run(rule, key, layout_, plan_.edge_ids, hop + 1 == plan_.hops);
  }

  SampledMinibatch<Local> take() {
    out_.edges.resize(edges_.size());
    for (size_t number = 0; number < edges_.size(); ++number) {
      const Relation<Index>& relation = graph_.relations[number];
      const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
      const bool induced = plan_.subgraph == Subgraph::kInduced;
      const int64_t rows = induced ? nodes_[target].count() : nodes_[target].first();
      if (rows == 0) continue;
      if (induced) {
        const Naming naming(graph_.num_nodes[target]);
        AllowedEdges<Index> allowed(relation, plan_.window, scratch_.latest,
                                    excluded_pairs(seeds_, static_cast<int64_t>(number)), scratch_.listed);
        edges_[number] =
            induced_edges<Index, Local>(relation, naming, graph_.num_nodes[source], nodes_[target],
                                        local_[source], allowed, layout_, plan_.edge_ids);
      }
      out_.edges[number] = edges_[number].take(layout_, rows);
    }
    out_.nodes.resize(nodes_.size());
    for (size_t type = 0; type < nodes_.size(); ++type) {
      if (nodes_[type].count() > 0) take_nodes(type);
    }
    return std::move(out_);
  }

  void take_nodes(size_t type) {
    SampledNodes& out = out_.nodes[type];
    out.count = nodes_[type].count();
    out.node = nodes_[type].take();
    if constexpr (Naming::kDisjoint) {
      const Naming naming(graph_.num_nodes[type]);
      int64_t* example = out.example.reserve(out.count);
      for (int64_t i = 0; i < out.count; ++i) {
        const Target of = naming.target(out.node.data()[i]);
        out.node.data()[i] = of.node;
        example[i] = of.example;
      }
    }
  }

  const TypedGraph<Index>& graph_;
  const Plan& plan_;
  const Seeds& seeds_;
  const Layout layout_;
  std::vector<NodeMap<Id>>& local_;
  Scratch<Index>& scratch_;
  std::vector<Nodes<Id>> nodes_;
  std::vector<Edges<Local>> edges_;
  SampledMinibatch<Local> out_;
};

// Sets the time of each example's seed and returns the number of examples.
int64_t read_examples(const Seeds& seeds, int64_t count, std::vector<int64_t>* latest) {
  int64_t examples = 0;
  for (int64_t i = 0; i < count; ++i) examples = std::max(examples, seeds.example[i] + 1);
  latest->assign(static_cast<size_t>(examples), 0);
  if (seeds.time == nullptr) return examples;
  for (int64_t i = 0; i < count; ++i) (*latest)[static_cast<size_t>(seeds.example[i])] = seeds.time[i];
  return examples;
}

}  // namespace

template <class Index, class Local>
SampledMinibatch<Local> sample_minibatch(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds,
                                         Layout layout, Scratch<Index>& scratch) {
  if (seeds.example == nullptr) {
    using OneSampler = Sampler<Index, Local, MapId<Index>, SharedNodes>;
    return OneSampler(graph, plan, seeds, layout, scratch.local, scratch).run(1);
  }
  const int64_t examples = read_examples(seeds, seeds.ptr[graph.num_nodes.size()], &scratch.latest);
  const int64_t most = *std::max_element(graph.num_nodes.begin(), graph.num_nodes.end());
  if (most > 0 && examples > std::numeric_limits<int64_t>::max() / most) {
    throw std::length_error("the examples of a minibatch have more than 2^63 nodes; use smaller batches");
  }
  return Sampler<Index, Local, uint64_t, DisjointNodes>(graph, plan, seeds, layout, scratch.disjoint, scratch)
      .run(examples);
}

template SampledMinibatch<int32_t> sample_minibatch(const TypedGraph<int32_t>&, const Plan&, const Seeds&,
                                                    Layout, Scratch<int32_t>&);
template SampledMinibatch<int64_t> sample_minibatch(const TypedGraph<int32_t>&, const Plan&, const Seeds&,
                                                    Layout, Scratch<int32_t>&);
template SampledMinibatch<int32_t> sample_minibatch(const TypedGraph<int64_t>&, const Plan&, const Seeds&,
                                                    Layout, Scratch<int64_t>&);
template SampledMinibatch<int64_t> sample_minibatch(const TypedGraph<int64_t>&, const Plan&, const Seeds&,
                                                    Layout, Scratch<int64_t>&);

}  // namespace pyg_batchgnn
