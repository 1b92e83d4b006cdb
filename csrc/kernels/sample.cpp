#include "kernels/sample.h"

#include <algorithm>

#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

template <class Index, class Local>
class Sampler {
 public:
  using Id = MapId<Index>;

  Sampler(const Csc<Index>& graph, const Plan& plan, Layout layout, Scratch<Index>& scratch)
      : graph_(graph), plan_(plan), scratch_(scratch), growth_(layout, plan.edge_ids, graph.num_nodes) {}

  Sampled<Local> run(const int64_t* seeds, int64_t count) {
    const uint64_t key = minibatch_key(seeds, count);
    growth_.take_seeds(seeds, count);
    growth_.enter(scratch_.local);
    for (size_t hop = 0; hop < plan_.fanouts.size(); ++hop) {
      count_picks(plan_.fanouts[hop]);
      growth_.make_room(hop + 1 == plan_.fanouts.size());
      fill(hop_key(plan_.seed, plan_.epoch, key, hop), plan_.fanouts[hop]);
      growth_.close_hop();
    }
    return growth_.take();
  }

 private:
  // Count and scan: finds the begin of the adjacency and the place of the edges of each
  // destination.
  void count_picks(int64_t fanout) {
    const int64_t first = growth_.first(), last = growth_.last();
    const int64_t* node = growth_.node();
    int64_t* begin = scratch_.first.reserve(2 * (last - first));
    int64_t* indptr = growth_.open_hop();
    int64_t total = indptr[first];
    for (int64_t i = first; i < last; ++i) {
      if (i + kPointerAhead < last) __builtin_prefetch(&graph_.indptr[node[i + kPointerAhead]]);
      const int64_t start = graph_.indptr[node[i]];
      const int64_t degree = graph_.indptr[node[i] + 1] - start;
      begin[2 * (i - first)] = start;
      begin[2 * (i - first) + 1] = degree;
      total += picks_of(degree, fanout, plan_.replacement);
      indptr[i + 1] = total;
    }
  }

  // Handles destinations in groups of about kBlock picks: chooses, then looks up. One long
  // adjacency list is a group of its own.
  void fill(uint64_t key, int64_t fanout) {
    const Chooser choose(fanout, plan_.replacement, &scratch_.picked);
    const int64_t first = growth_.first(), last = growth_.last();
    const int64_t edges_before = growth_.edges();
    const int64_t* indptr = growth_.indptr();
    for (int64_t group = first; group < last;) {
      int64_t end = group + 1;
      while (end < last && indptr[end + 1] - indptr[group] <= kBlock) ++end;
      const int64_t edges = indptr[end] - indptr[group];
      int64_t* position = plan_.edge_ids ? growth_.edge() + indptr[group] : scratch_.position.reserve(edges);
      choose_group(choose, key, group, end, position);
      for (int64_t done = 0; done < edges; done += kBlock) {
        look_up(position + done, std::min(kBlock, edges - done));
      }
      growth_.write_destinations(group, end);
      group = end;
    }
    if (plan_.edge_ids && graph_.edge_ids != nullptr) {
      int64_t* edge = growth_.edge() + edges_before;
      translate_edge_ids(graph_, edge, growth_.edges() - edges_before, edge);
    }
  }

  void choose_group(const Chooser& choose, uint64_t key, int64_t group, int64_t end, int64_t* position) {
    const int64_t* node = growth_.node();
    const int64_t* begin = scratch_.first.data() + 2 * (group - growth_.first());
    const int64_t* indptr = growth_.indptr();
    const int64_t base = indptr[group];
    // Lists lie on different pages, and a prefetch waits for the translation of its page. So all
    // lists are touched first, and their picks are then prefetched without waiting.
    for (int64_t i = 0; i < end - group; ++i) __builtin_prefetch(&graph_.indices[begin[2 * i]]);
    for (int64_t i = group; i < end; ++i, begin += 2) {
      pick(choose, fold(key, static_cast<uint64_t>(node[i])), begin[0], begin[1], indptr[i + 1] - indptr[i],
           graph_.indices, position + (indptr[i] - base));
    }
  }

  // Reads the ids of the sources of `count` picks and finds or assigns their local ids.
  void look_up(const int64_t* position, int64_t count) {
    Id source[kBlock];
    growth_.prepare(scratch_.local, count);
    for (int64_t e = 0; e < count; ++e) {
      source[e] = static_cast<Id>(graph_.indices[position[e]]);
      scratch_.local.prefetch(source[e]);
    }
    growth_.relabel(scratch_.local, source, count);
  }

  const Csc<Index>& graph_;
  const Plan& plan_;
  Scratch<Index>& scratch_;
  Growth<Index, Local> growth_;
};

}  // namespace

template <class Index, class Local>
Sampled<Local> sample_minibatch(const Csc<Index>& graph, const Plan& plan, const int64_t* seeds,
                                int64_t count, Layout layout, Scratch<Index>& scratch) {
  return Sampler<Index, Local>(graph, plan, layout, scratch).run(seeds, count);
}

template Sampled<int32_t> sample_minibatch(const Csc<int32_t>&, const Plan&, const int64_t*, int64_t, Layout,
                                           Scratch<int32_t>&);
template Sampled<int64_t> sample_minibatch(const Csc<int32_t>&, const Plan&, const int64_t*, int64_t, Layout,
                                           Scratch<int32_t>&);
template Sampled<int32_t> sample_minibatch(const Csc<int64_t>&, const Plan&, const int64_t*, int64_t, Layout,
                                           Scratch<int64_t>&);
template Sampled<int64_t> sample_minibatch(const Csc<int64_t>&, const Plan&, const int64_t*, int64_t, Layout,
                                           Scratch<int64_t>&);

}  // namespace pyg_batchgnn
