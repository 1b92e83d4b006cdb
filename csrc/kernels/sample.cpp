#include "kernels/sample.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

// Picks handled together: enough that the cache misses of one step overlap, few enough that what a step
// prefetched is still in the first-level cache when the next one wants it.
constexpr int64_t kBlock = 256;
constexpr int64_t kPointerAhead = 32;  // destinations between the prefetch of a pointer and its use
constexpr int64_t kMaxNodes = std::numeric_limits<int32_t>::max();

template <class Index, class Local>
class Sampler {
 public:
  using Id = typename Scratch<Index>::Id;

  Sampler(const Csc<Index>& graph, const Plan& plan, Layout layout, Scratch<Index>& scratch)
      : graph_(graph), plan_(plan), layout_(layout), scratch_(scratch) {}

  Sampled<Local> run(const int64_t* seeds, int64_t count) {
    const uint64_t key = minibatch_key(seeds, count);
    take_seeds(seeds, count);
    int64_t first = 0;
    for (size_t hop = 0; hop < plan_.fanouts.size(); ++hop) {
      const int64_t last = out_.nodes, edges_before = out_.edge_count;
      const int64_t edges = count_picks(first, last, plan_.fanouts[hop]);
      make_room(edges, hop + 1 == plan_.fanouts.size());
      fill(first, last, hop_key(plan_.seed, plan_.epoch, key, hop), plan_.fanouts[hop], edges_before);
      out_.edges_per_hop.push_back(edges);
      out_.nodes_per_hop.push_back(out_.nodes - last);
      first = last;
    }
    return std::move(out_);
  }

 private:
  void take_seeds(const int64_t* seeds, int64_t count) {
    scratch_.local.begin();
    scratch_.local.reserve(count + 1, seeds, 0);
    int64_t* node = out_.node.reserve(count + 1);
    for (int64_t i = 0; i < count; ++i) {
      node[i] = seeds[i];
      scratch_.local.find_or_insert(static_cast<Id>(seeds[i]), static_cast<uint32_t>(i));
    }
    out_.nodes = count;
    out_.nodes_per_hop.push_back(count);
    out_.indptr.reserve(1)[0] = 0;
  }

  // Count and scan: where each destination's adjacency begins and where its edges go. Returns the hop's
  // edges.
  int64_t count_picks(int64_t first, int64_t last, int64_t fanout) {
    const int64_t* node = out_.node.data();
    int64_t* begin = scratch_.first.reserve(2 * (last - first));
    int64_t* indptr = out_.indptr.reserve(last + 1, first + 1);
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
    out_.destinations = last;
    return total - indptr[first];
  }

  // Room for `edges` more edges and the nodes that they may find. Only now is the size of the last hop known:
  // the arrays of the hops before it, which are small, move into arrays that have exactly the final size.
  void make_room(int64_t edges, bool last_hop) {
    const int64_t total = out_.edge_count + edges;
    const int64_t nodes = std::min(out_.nodes + edges, out_.nodes_per_hop[0] + graph_.num_nodes);
    out_.node.reserve(nodes + 1, out_.nodes);  // one more, because insertion writes before it knows
    const bool coo = layout_ == Layout::kCoo;
    const int64_t room = last_hop ? total : std::max(total, 2 * edge_room_);
    if (room > edge_room_ || last_hop) {
      Buffer<Local> bigger;
      bigger.reserve(coo ? 2 * room : room);
      copy(bigger.data(), out_.edges.data(), out_.edge_count);
      if (coo) copy(bigger.data() + room, out_.edges.data() + edge_room_, out_.edge_count);
      out_.edges = std::move(bigger);
      edge_room_ = room;
    }
    if (plan_.edge_ids) out_.edge.reserve(total, out_.edge_count);
  }

  template <class T>
  static void copy(T* to, const T* from, int64_t count) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  }

  // Destinations in groups of about kBlock picks: choose, then look up. One huge adjacency is a group of its
  // own.
  void fill(int64_t first, int64_t last, uint64_t key, int64_t fanout, int64_t edges_before) {
    const Chooser choose(fanout, plan_.replacement, &scratch_.picked);
    const int64_t* indptr = out_.indptr.data();
    for (int64_t group = first; group < last;) {
      int64_t end = group + 1;
      while (end < last && indptr[end + 1] - indptr[group] <= kBlock) ++end;
      const int64_t edges = indptr[end] - indptr[group];
      int64_t* position =
          plan_.edge_ids ? out_.edge.data() + indptr[group] : scratch_.position.reserve(edges);
      choose_group(choose, key, group, end, first, position);
      for (int64_t done = 0; done < edges; done += kBlock) {
        look_up(position + done, std::min(kBlock, edges - done));
      }
      if (layout_ == Layout::kCoo) write_destinations(group, end);
      group = end;
    }
    if (plan_.edge_ids && graph_.edge_ids != nullptr) {
      translate_edge_ids(out_.edge.data() + edges_before, out_.edge_count - edges_before);
    }
  }

  void choose_group(const Chooser& choose, uint64_t key, int64_t group, int64_t end, int64_t first,
                    int64_t* position) {
    const int64_t* node = out_.node.data();
    const int64_t* begin = scratch_.first.data() + 2 * (group - first);
    const int64_t* indptr = out_.indptr.data();
    const int64_t base = indptr[group];
    for (int64_t i = group; i < end; ++i, begin += 2) {
      const int64_t picks = indptr[i + 1] - indptr[i];
      if (picks == 0) continue;
      int64_t* mine = position + (indptr[i] - base);
      choose(fold(key, static_cast<uint64_t>(node[i])), begin[0], begin[1], mine);
      // What is prefetched for a long list would be gone again before it is read.
      if (picks <= kBlock) {
        for (int64_t p = 0; p < picks; ++p) __builtin_prefetch(&graph_.indices[mine[p]]);
      }
    }
  }

  // Sources of `count` picks: read their ids, then find or give their local ids.
  void look_up(const int64_t* position, int64_t count) {
    if (out_.nodes > kMaxNodes - kBlock) {
      throw std::length_error("a minibatch reaches more than 2^31 nodes; use smaller fanouts or batches");
    }
    Id source[kBlock];
    scratch_.local.reserve(out_.nodes + count, out_.node.data(), out_.nodes);
    for (int64_t e = 0; e < count; ++e) {
      source[e] = static_cast<Id>(graph_.indices[position[e]]);
      scratch_.local.prefetch(source[e]);
    }
    out_.nodes = scratch_.local.number(source, count, static_cast<uint32_t>(out_.nodes), out_.node.data(),
                                       out_.edges.data() + out_.edge_count);
    out_.edge_count += count;
  }

  void write_destinations(int64_t group, int64_t end) {
    const int64_t* indptr = out_.indptr.data();
    Local* destination = out_.edges.data() + edge_room_;
    for (int64_t i = group; i < end; ++i) {
      std::fill(destination + indptr[i], destination + indptr[i + 1], static_cast<Local>(i));
    }
  }

  void translate_edge_ids(int64_t* edge, int64_t count) const {
    if (graph_.wide_edge_ids) {
      translate(static_cast<const int64_t*>(graph_.edge_ids), edge, count);
    } else {
      translate(static_cast<const int32_t*>(graph_.edge_ids), edge, count);
    }
  }

  template <class EdgeId>
  static void translate(const EdgeId* ids, int64_t* edge, int64_t count) {
    constexpr int64_t kAhead = 64;
    for (int64_t e = 0; e < count; ++e) {
      if (e + kAhead < count) __builtin_prefetch(&ids[edge[e + kAhead]]);
      edge[e] = static_cast<int64_t>(ids[edge[e]]);
    }
  }

  const Csc<Index>& graph_;
  const Plan& plan_;
  const Layout layout_;
  Scratch<Index>& scratch_;
  Sampled<Local> out_;
  int64_t edge_room_ = 0;
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
