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

  // Handles targets in groups. The steps of two groups alternate: what one step prefetches for the
  // next group comes from memory while a step of this group works.
  void fill(Rule& rule, uint64_t key, Layout layout, bool edge_ids) {
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
      out_.write_targets(layout, first + group.first, first + group.last);
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
  Edges<Local>& out_;
  NodeMap<Id>& local_;
  Scratch<Index>& scratch_;
  Id source_[kBlock];  // of the picks that are looked up
  size_t turn_ = 0;    // the buffers of the next group
};

}  // namespace pyg_batchgnn
