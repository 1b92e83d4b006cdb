// The answers of an owner about an induced subgraph. A question holds all nodes of a minibatch, in
// local order. The owner answers for those that are its own, with the local ids of the sources that
// are among the nodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/relay/asked.h"
#include "kernels/relay/sections.h"
#include "kernels/sample/induced.h"

namespace pyg_batchgnn {

template <class Index, class Naming>
class InducedOwner {
 public:
  InducedOwner(const OwnPart<Index>& part, const Plan& plan, const std::vector<AskedBlock<Index>>& asked,
               const std::vector<AnswerShape>& shapes, size_t peers)
      : part_(part), plan_(plan), shapes_(shapes), first_(part.firsts()), sections_(shapes, peers) {
    for (const AskedBlock<Index>& block : asked) {
      for (size_t relation = 0; relation < shapes.size(); ++relation) {
        tasks_.push_back({&block, {block.peer, relation, 0}, {}});
      }
    }
  }

  Answers run(int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    Answers out;
    for (const Task& task : tasks_) {
      if ((out.fault = outsider(*task.block))) return out;
    }
    const auto tasks = static_cast<int64_t>(tasks_.size());
    run_tasks(tasks, threads, [&](int64_t at, int64_t) {
      const auto scratch = scratches.borrow();
      find(&tasks_[static_cast<size_t>(at)], *scratch);
    });
    for (Task& task : tasks_) sections_.add(&task.piece);
    sections_.lay_out(&out);
    for (const Task& task : tasks_) write(task);
    return out;
  }

 private:
  using Id = std::conditional_t<Naming::kDisjoint, uint64_t, MapId<Index>>;

  // One relation of one block.
  struct Task {
    const AskedBlock<Index>* block;
    Piece piece;
    SampledEdges<Index> edges;  // of own nodes, from local ids
  };

  // Nodes may be anybody's but must be nodes.
  Fault outsider(const AskedBlock<Index>& asked) const {
    for (int64_t i = 0; i < asked.block.size.nodes; ++i) {
      const int64_t node = asked.block.body.node[i];
      if (node < 0 || node >= part_.num_nodes) {
        return {WireError::kNode, static_cast<int64_t>(asked.peer), node};
      }
    }
    return {};
  }

  void find(Task* task, Scratch<Index>& scratch) const {
    const AskedBlock<Index>& asked = *task->block;
    const Relation<Index>& relation = part_.graph.relations[task->piece.relation];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    const Naming naming(part_.num_nodes);
    std::vector<int64_t> code;
    const AskedNodes<Index> all = asked.nodes(0, 0), own = asked.nodes(0, first_[target]);
    for (int64_t i = asked.begins[source]; i < asked.begins[source + 1]; ++i) {
      code.push_back(naming.code(all.target(i)));
    }
    Nodes<Id> sources;
    sources.take_seeds(code.data(), static_cast<int64_t>(code.size()), 0);
    auto& maps = scratch.maps(naming);
    if (maps.empty()) maps.resize(1);
    sources.enter(maps.front());

    code.clear();
    const auto rows = static_cast<uint64_t>(relation.edges.num_nodes);
    for (int64_t i = asked.begins[target]; i < asked.begins[target + 1]; ++i) {
      if (static_cast<uint64_t>(own.target(i).node) < rows) code.push_back(naming.code(own.target(i)));
    }
    Nodes<Id> targets;
    targets.take_seeds(code.data(), static_cast<int64_t>(code.size()), 0);
    AllowedEdges<Index> allowed(relation, plan_.window, asked.latest.data(),
                                asked.pairs(task->piece.relation), scratch.listed);
    task->edges = induced_edges<Index, Index>(relation, naming, part_.num_nodes, targets, maps.front(),
                                              allowed, Layout::kCsc, plan_.edge_ids)
                      .take(Layout::kCsc, targets.count());
    task->piece.nodes = targets.count();
    task->piece.picks = task->edges.count;
  }

  void write(const Task& task) const {
    const AnswerShape& shape = shapes_[task.piece.relation];
    const SampledEdges<Index>& edges = task.edges;
    std::vector<int64_t> picks;
    for (int64_t i = 0; i < edges.targets; ++i) {
      picks.push_back(edges.indptr.data()[i + 1] - edges.indptr.data()[i]);
    }
    shape.write_counts(sections_.counts(task.piece), task.piece.nodes_before, picks.data(), edges.targets);
    std::copy_n(edges.edges.data(), edges.count, reinterpret_cast<Index*>(sections_.sources(task.piece)));
    char* ids = sections_.edges(task.piece);
    if (shape.edge_bytes == 4) std::copy_n(edges.edge.data(), edges.count, reinterpret_cast<int32_t*>(ids));
    if (shape.edge_bytes == 8) std::copy_n(edges.edge.data(), edges.count, reinterpret_cast<int64_t*>(ids));
  }

  const OwnPart<Index>& part_;
  const Plan& plan_;
  const std::vector<AnswerShape>& shapes_;
  const std::vector<int64_t> first_;  // own id of each type
  Sections sections_;
  std::vector<Task> tasks_;
};

}  // namespace pyg_batchgnn
