#include "kernels/sample/sample.h"

#include <algorithm>

#include "kernels/random.h"
#include "kernels/sample/growth.h"
#include "kernels/sample/induced.h"
#include "kernels/sample/seed_lists.h"
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
        growth_(graph.num_nodes.size(), graph.relations.size(), plan.hops) {
    if (local_.size() < growth_.types()) local_.resize(growth_.types());
  }

  SampledMinibatch<Local> run(int64_t examples) {
    take_seeds(examples);
    for (int64_t hop = 0; hop < plan_.hops; ++hop) {
      const uint64_t key = hop_key(plan_.seed, plan_.epoch, seeds_.key, static_cast<uint64_t>(hop));
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
    if (!graph_.plain()) key = fold(key, relation.digest);
    with_rule(relation, plan_, fanout, scratch_.latest.data(),
              excluded_pairs(seeds_, static_cast<int64_t>(number)), scratch_,
              [&](auto& rule) { growth_.count_edges(number, hop, expand_by(rule, number, hop, key)); });
  }

  template <class Rule>
  int64_t expand_by(Rule& rule, size_t number, int64_t hop, uint64_t key) {
    const Relation<Index>& relation = graph_.relations[number];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    Expansion<Index, Local, Id, Naming, Rule> expansion(relation, naming(target), graph_.num_nodes[source],
                                                        growth_.nodes(target), growth_.nodes(source),
                                                        growth_.edges(number), local_[source], scratch_);
    return expansion.run(rule, key, layout_, plan_.edge_ids, hop + 1 == plan_.hops);
  }

  void take_edges(size_t number) {
    const Relation<Index>& relation = graph_.relations[number];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    const Nodes<Id>& targets = growth_.nodes(target);
    if (plan_.subgraph == Subgraph::kDirectional) {
      growth_.take_edges(number, layout_, targets.first());
      return;
    }
    if (targets.count() == 0) return;
    AllowedEdges<Index> allowed(relation, plan_.window, scratch_.latest.data(),
                                excluded_pairs(seeds_, static_cast<int64_t>(number)), scratch_.listed);
    growth_.edges(number) =
        induced_edges<Index, Local>(relation, naming(target), graph_.num_nodes[source], targets,
                                    local_[source], allowed, layout_, plan_.edge_ids);
    growth_.take_edges(number, layout_, targets.count());
  }

  const TypedGraph<Index>& graph_;
  const Plan& plan_;
  const Seeds& seeds_;
  const Layout layout_;
  std::vector<NodeMap<Id>>& local_;
  Scratch<Index>& scratch_;
  Growth<Local, Id, Naming> growth_;
};

}  // namespace

template <class Index, class Local>
SampledMinibatch<Local> sample_minibatch(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds,
                                         Layout layout, Scratch<Index>& scratch) {
  const int64_t most = *std::max_element(graph.num_nodes.begin(), graph.num_nodes.end());
  const int64_t examples = read_examples(seeds, seeds.ptr[graph.num_nodes.size()], most, &scratch.latest);
  if (seeds.example == nullptr) {
    using OneSampler = Sampler<Index, Local, MapId<Index>, SharedNodes>;
    return OneSampler(graph, plan, seeds, layout, scratch.local, scratch).run(examples);
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
