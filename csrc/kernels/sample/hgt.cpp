#include "kernels/sample/hgt.h"

#include <algorithm>

#include "kernels/prefetch.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr uint64_t kHgt = 0x746768;  // "hgt", little-endian
constexpr uint64_t kNeighbours = 0, kDraws = 1;

// The neighbours of a node that count: all, or `cap` of them, which are drawn once per minibatch.
template <class Index>
class CappedLists {
 public:
  CappedLists(const Csc<Index>& edges, int64_t cap, uint64_t relation_key, NodeMap<uint64_t>* picked)
      : edges_(edges), cap_(cap), key_(relation_key), choose_(cap, Replacement::kWithout, picked) {}

  // Appends the positions of the edges that count, in ascending order.
  void append(int64_t node, std::vector<int64_t>* position) const {
    const int64_t start = edges_.indptr[node], degree = edges_.indptr[node + 1] - start;
    const int64_t count = picks_of(degree, cap_, Replacement::kWithout);
    const size_t before = position->size();
    position->resize(before + static_cast<size_t>(count));
    int64_t* own = position->data() + before;
    choose_(fold(key_, static_cast<uint64_t>(node)), start, degree, own);
    if (count < degree) std::sort(own, own + count);
  }

 private:
  const Csc<Index>& edges_;
  const int64_t cap_;
  const uint64_t key_;
  const Chooser choose_;
};

template <class Id>
struct SampledSources {
  const Candidates<Id>& nodes;

  uint64_t code(int64_t, int64_t node) const { return static_cast<uint64_t>(node); }
  void prefetch(uint64_t code) const { nodes.prefetch(static_cast<Id>(code)); }
  int64_t find(uint64_t code) const { return nodes.find(static_cast<Id>(code)); }
};

template <class Index>
class HgtSampler {
 public:
  HgtSampler(const TypedGraph<Index>& graph, const HgtPlan& plan, const Seeds& seeds,
             HgtScratch<Index>& scratch)
      : graph_(graph),
        plan_(plan),
        key_(fold(fold(epoch_key(plan.seed, plan.epoch), seeds.key), kHgt)),
        scratch_(scratch),
        types_(scratch.types) {
    const size_t types = graph.num_nodes.size(), relations = graph.relations.size();
    if (types_.size() < types) types_.resize(types);
    out_.nodes_per_hop.resize(types * static_cast<size_t>(plan.hops + 1));
    out_.edges_per_hop.resize(relations * static_cast<size_t>(plan.hops));
    for (size_t type = 0; type < types; ++type) {
      const int64_t begin = seeds.ptr[type], count = seeds.ptr[type + 1] - begin;
      types_[type].begin(seeds.node + begin, count, graph.num_nodes[type]);
      found(type, 0) = count;
    }
  }

  SampledMinibatch run() {
    for (int64_t hop = 0; hop < plan_.hops; ++hop) {
      for (const size_t number : plan_.relation_order) offer(number);
      const uint64_t key = fold(fold(key_, kDraws), static_cast<uint64_t>(hop));
      for (size_t type = 0; type < graph_.num_nodes.size(); ++type) {
        const int64_t wanted =
            plan_.samples[type * static_cast<size_t>(plan_.hops) + static_cast<size_t>(hop)];
        const uint64_t own = graph_.plain() ? key : fold(key, plan_.type_digest[type]);
        found(type, hop + 1) = types_[type].sample(own, wanted, scratch_.draw);
      }
    }
    take_nodes();
    take_edges();
    return std::move(out_);
  }

 private:
  using Id = MapId<Index>;

  int64_t& found(size_t type, int64_t hop) {
    return out_.nodes_per_hop[type * static_cast<size_t>(plan_.hops + 1) + static_cast<size_t>(hop)];
  }

  Candidates<Id>& targets(size_t number) {
    return types_[static_cast<size_t>(graph_.relations[number].target)];
  }
  Candidates<Id>& sources(size_t number) {
    return types_[static_cast<size_t>(graph_.relations[number].source)];
  }

  CappedLists<Index> lists(size_t number) const {
    const Relation<Index>& relation = graph_.relations[number];
    const uint64_t key = fold(key_, kNeighbours);
    return {relation.edges, plan_.cap, graph_.plain() ? key : fold(key, relation.digest), &scratch_.picked};
  }

  // Adds to the budgets of the neighbours of the rows that were sampled last, under one relation.
  void offer(size_t number) {
    Candidates<Id>& from = targets(number);
    const int64_t rows = from.rows();
    const CappedLists<Index> capped = lists(number);
    const auto list = [&](int64_t row, std::vector<int64_t>* position) {
      if (from.is_first(row)) capped.append(from.node(row), position);
    };
    RowLists& group = scratch_.lists;
    for (int64_t row = from.first(); row < rows;) {
      row = group.fill(row, rows, list);
      offer_group(number, group);
    }
  }

  void offer_group(size_t number, const RowLists& group) {
    const Index* indices = graph_.relations[number].edges.indices;
    Candidates<Id>& nodes = sources(number);
    for (const int64_t at : group.position) prefetch_line(&indices[at]);
    Id node[kBlock];
    double share[kBlock];
    size_t row = 0;
    const auto total = static_cast<int64_t>(group.position.size());
    for (int64_t done = 0; done < total; done += kBlock) {
      const int64_t count = std::min(kBlock, total - done);
      nodes.prepare(count);
      for (int64_t e = 0; e < count; ++e) {
        while (group.end[row] <= done + e) ++row;
        const int64_t begin = row == 0 ? 0 : group.end[row - 1];
        node[e] = static_cast<Id>(indices[group.position[static_cast<size_t>(done + e)]]);
        share[e] = 1.0 / static_cast<double>(group.end[row] - begin);
        nodes.prefetch(node[e]);
      }
      nodes.add(node, share, count);
    }
  }

  void take_nodes() {
    out_.nodes.resize(graph_.num_nodes.size());
    for (size_t type = 0; type < out_.nodes.size(); ++type) {
      const int64_t rows = types_[type].rows();
      if (rows == 0) continue;
      int64_t* node = out_.nodes[type].node.reserve(rows);
      for (int64_t row = 0; row < rows; ++row) node[row] = types_[type].node(row);
      out_.nodes[type].count = rows;
    }
  }

  void take_edges() {
    out_.edges.resize(graph_.relations.size());
    for (size_t number = 0; number < out_.edges.size(); ++number) {
      const Candidates<Id>& into = targets(number);
      if (into.rows() == 0) continue;
      const CappedLists<Index> capped = lists(number);
      const auto list = [&](int64_t row, std::vector<int64_t>* position) {
        capped.append(into.node(row), position);
      };
      Edges edges = edges_between(graph_.relations[number].edges, into.rows(), list,
                                  SampledSources<Id>{sources(number)}, plan_.edge_ids);
      out_.edges[number] = edges.take(into.rows());
    }
  }

  const TypedGraph<Index>& graph_;
  const HgtPlan& plan_;
  const uint64_t key_;
  HgtScratch<Index>& scratch_;
  std::vector<Candidates<Id>>& types_;
  SampledMinibatch out_;
};

}  // namespace

template <class Index>
SampledMinibatch sample_hgt(const TypedGraph<Index>& graph, const HgtPlan& plan, const Seeds& seeds,
                            HgtScratch<Index>& scratch) {
  return HgtSampler<Index>(graph, plan, seeds, scratch).run();
}

template SampledMinibatch sample_hgt(const TypedGraph<int32_t>&, const HgtPlan&, const Seeds&,
                                     HgtScratch<int32_t>&);
template SampledMinibatch sample_hgt(const TypedGraph<int64_t>&, const HgtPlan&, const Seeds&,
                                     HgtScratch<int64_t>&);

}  // namespace pyg_batchgnn
