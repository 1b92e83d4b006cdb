// The traversal: hop by hop, relation by relation, from the seeds against the edges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/sample/edges.h"
#include "kernels/sample/naming.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/rules.h"
#include "kernels/sample/steps.h"

namespace pyg_batchgnn {

// One relation in one hop: counts the picks of the frontier, scans, and fills the edges.
template <class Index, class Local, class Id, class Naming, class Rule>
class Expansion {
 public:
  Expansion(const Relation<Index>& relation, Naming targets, int64_t source_nodes, const Nodes<Id>& frontier,
            Nodes<Id>& sources, Edges<Local>& out, NodeMap<Id>& local, Scratch<Index>& scratch)
      : relation_(relation),
        targets_(targets),
        source_nodes_(source_nodes),
        frontier_(frontier),
        sources_(sources),
        out_(out),
        local_(local),
        scratch_(scratch) {}

  // Returns the number of edges.
  int64_t run(Rule& rule, uint64_t key, Layout layout, bool edge_ids, bool last_hop) {
    const int64_t before = out_.count();
    count_picks(rule);
    sources_.make_room(out_.indptr()[frontier_.last()] - before);
    out_.make_room(layout, edge_ids, last_hop);
    fill(rule, key, layout, edge_ids);
    if (edge_ids && relation_.edges.edge_ids != nullptr) {
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

  // Handles targets in groups of about kBlock picks: chooses, then looks up. One long adjacency
  // list is a group of its own.
  void fill(Rule& rule, uint64_t key, Layout layout, bool edge_ids) {
    const int64_t first = frontier_.first(), last = frontier_.last();
    const int64_t* indptr = out_.indptr();
    for (int64_t group = first; group < last;) {
      int64_t end = group + 1;
      while (end < last && indptr[end + 1] - indptr[group] <= kBlock) ++end;
      const int64_t edges = indptr[end] - indptr[group];
      int64_t* position = edge_ids ? out_.edge() + indptr[group] : scratch_.position.reserve(edges);
      choose_group(rule, key, group, end, position);
      for (int64_t done = 0; done < edges; done += kBlock) {
        look_up(position, done, std::min(kBlock, edges - done));
      }
      out_.write_targets(layout, group, end);
      group = end;
    }
  }

  void choose_group(Rule& rule, uint64_t key, int64_t group, int64_t end, int64_t* position) {
    const int64_t* code = frontier_.code();
    const int64_t* indptr = out_.indptr();
    const int64_t base = indptr[group], first = frontier_.first();
    choose_lists(
        rule, group - first, end - first, [&](int64_t i) { return targets_.key(key, code[first + i]); },
        [&](int64_t i) { return indptr[first + i + 1] - indptr[first + i]; }, position);
    if constexpr (Naming::kDisjoint) {
      uint64_t* offset = scratch_.offset.reserve(indptr[end] - base);
      for (int64_t i = group; i < end; ++i) {
        const auto of = static_cast<uint64_t>(targets_.target(code[i]).example * source_nodes_);
        std::fill(offset + (indptr[i] - base), offset + (indptr[i + 1] - base), of);
      }
    }
  }

  // Reads the sources of `count` picks of the group and finds or assigns their local ids.
  void look_up(const int64_t* position, int64_t begin, int64_t count) {
    Id source[kBlock];
    const Index* indices = relation_.edges.indices;
    sources_.prepare(local_, count);
    for (int64_t e = 0; e < count; ++e) {
      source[e] = static_cast<Id>(indices[position[begin + e]]);
      if constexpr (Naming::kDisjoint) source[e] += static_cast<Id>(scratch_.offset.data()[begin + e]);
      local_.prefetch(source[e]);
    }
    sources_.relabel(local_, source, count, out_.next());
    out_.append(count);
  }

  const Relation<Index>& relation_;
  const Naming targets_;
  const int64_t source_nodes_;
  const Nodes<Id>& frontier_;
  Nodes<Id>& sources_;
  Edges<Local>& out_;
  NodeMap<Id>& local_;
  Scratch<Index>& scratch_;
};

}  // namespace pyg_batchgnn
