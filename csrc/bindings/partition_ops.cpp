#include <vector>

#include "bindings/operators.h"
#include "kernels/partition/lists.h"
#include "kernels/partition/multilevel/coarsen.h"
#include "kernels/partition/multilevel/refine.h"
#include "kernels/partition/multilevel/solve.h"
#include "kernels/partition/stream.h"

namespace pyg_batchgnn {
namespace {

// Returns the order of the rows, empty if they are in that order, and the rows of each group.
template <class Group>
TwoTensors grouped(const Group* group, int64_t rows, int64_t groups) {
  Buffer<int32_t> order;
  Buffer<int64_t> counts;
  const bool ordered = group_rows(group, rows, groups, order.reserve(rows + 1), counts.reserve(groups));
  return {adopt(std::move(order), {ordered ? 0 : rows}), adopt(std::move(counts), {groups})};
}

template <class Word, class Id, class Value>
bool append(const Tensor& rows, int64_t first, const Tensor& cursor, const Tensor& ids, Value* values) {
  const GrowingLists<Id, Value> lists{
      first, cursor.numel(), ids.numel(), mutable_data<int64_t>(cursor), mutable_data<Id>(ids), values};
  return append_edges(data<Word>(rows), rows.size(0), rows.size(1), lists);
}

template <class T>
T* mutable_or_null(const OptionalTensor& tensor) {
  return tensor.has_value() ? mutable_data<T>(*tensor) : nullptr;
}

template <class T>
Tensor copied(const T* from, const std::vector<int64_t>& sizes) {
  Tensor copy = new_array<T>(sizes);
  std::copy_n(from, copy.numel(), mutable_data<T>(copy));
  return copy;
}

// Returns the graph of the nodes that `all` [nodes + ghosts] has an entry for.
WeightedGraph graph_of(const Tensor& indptr, const Tensor& indices, const OptionalTensor& edge_weight,
                       const Tensor& node_weight, int64_t all) {
  const int64_t nodes = indptr.numel() - 1;
  return {nodes,
          all - nodes,
          node_weight.size(1),
          data<int64_t>(indptr),
          data<int32_t>(indices),
          data_or_null<int32_t>(edge_weight),
          data<int32_t>(node_weight)};
}

}  // namespace

namespace operators {

TwoTensors group_by_owner(const Tensor& owner, int64_t groups) {
  return with_integer(owner,
                      [&](auto type) { return grouped(data<decltype(type)>(owner), owner.numel(), groups); });
}

TwoTensors group_by_range(const Tensor& values, const Tensor& bounds) {
  const int64_t rows = values.numel(), groups = bounds.numel() - 1;
  Buffer<int32_t> group;
  with_integer(values, [&](auto type) {
    find_groups(data<decltype(type)>(values), rows, data<int64_t>(bounds), groups, group.reserve(rows + 1));
  });
  return grouped(group.data(), rows, groups);
}

bool count_values_(const Tensor& values, int64_t first, const Tensor& counts) {
  return with_integer(values, [&](auto type) {
    return count_values(data<decltype(type)>(values), values.numel(), first, counts.numel(),
                        mutable_data<int64_t>(counts));
  });
}

bool place_edges_(const Tensor& edges, int64_t first, const Tensor& cursor, const Tensor& indices,
                  const Tensor& edge_ids) {
  if (!is_wide(edges)) {
    return append<int32_t, int32_t>(edges, first, cursor, indices, mutable_data<int32_t>(edge_ids));
  }
  return with_integer(indices, [&](auto index) {
    return with_integer(edge_ids, [&](auto id) {
      return append<int64_t, decltype(index)>(edges, first, cursor, indices,
                                              mutable_data<decltype(id)>(edge_ids));
    });
  });
}

void assign_nodes_(const Tensor& indptr, const Tensor& indices, int64_t first, const Tensor& weight,
                   const Tensor& owner, const Tensor& found, int64_t begin, int64_t end, const Tensor& load,
                   const Tensor& limit, bool fennel, bool mend, double alpha, int64_t step, int64_t key) {
  const StreamRules rules{fennel ? Score::kFennel : Score::kLdg,
                          mend ? StreamPass::kMend : StreamPass::kAssign,
                          load.size(1),
                          load.size(0),
                          data<double>(limit),
                          alpha,
                          static_cast<double>(step),
                          static_cast<uint64_t>(key)};
  with_integer(indices, [&](auto type) {
    using Index = decltype(type);
    const StreamSlice<Index> slice{first,
                                   owner.numel(),
                                   data<int64_t>(indptr),
                                   data<Index>(indices),
                                   data<int32_t>(weight),
                                   mutable_data<int32_t>(owner)};
    pyg_batchgnn::assign_nodes(slice, begin, end, data<int32_t>(found), rules, mutable_data<double>(load));
  });
}

bool append_neighbours_(const Tensor& rows, int64_t first, const Tensor& cursor, const Tensor& ids,
                        const OptionalTensor& weights) {
  return with_integer(rows, [&](auto word) {
    return with_integer(ids, [&](auto id) {
      return append<decltype(word), decltype(id)>(rows, first, cursor, ids,
                                                  mutable_or_null<int32_t>(weights));
    });
  });
}

std::tuple<Tensor, Tensor, Tensor, int64_t> merge_neighbours(const Tensor& indptr, const Tensor& ids,
                                                             const OptionalTensor& weights, int64_t first) {
  return with_integer(ids, [&](auto type) {
    using Id = decltype(type);
    const int64_t lists = indptr.numel() - 1;
    auto* const old_weights = mutable_or_null<int32_t>(weights);
    Tensor begin = new_array<int64_t>({lists + 1});
    const Merged merged = sort_lists(first, lists, data<int64_t>(indptr), mutable_data<Id>(ids), old_weights,
                                     mutable_data<int64_t>(begin));
    const bool uniform = merged.uniform != 0;
    Tensor merged_ids = new_array<Id>({merged.edges});
    Tensor merged_weights = new_array<int32_t>({uniform ? 0 : merged.edges});
    merge_lists(first, lists, data<int64_t>(indptr), data<Id>(ids), old_weights, data<int64_t>(begin),
                mutable_data<Id>(merged_ids), uniform ? nullptr : mutable_data<int32_t>(merged_weights));
    return std::tuple(begin, merged_ids, merged_weights, static_cast<int64_t>(merged.uniform));
  });
}

Tensor number_ghosts_(const Tensor& ids, int64_t first, int64_t nodes, int64_t total, const Tensor& local) {
  return with_integer(ids, [&](auto type) {
    const auto ghosts = number_ghosts(data<decltype(type)>(ids), ids.numel(), first, nodes, total,
                                      mutable_data<int32_t>(local));
    return copied(ghosts.data(), {static_cast<int64_t>(ghosts.size())});
  });
}

int64_t cluster_nodes_(const Tensor& indptr, const Tensor& indices, const OptionalTensor& edge_weight,
                       const Tensor& node_weight, const Tensor& label, const Tensor& room, int64_t key,
                       int64_t first, bool together) {
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, label.numel());
  const Rooms rooms(graph.constraints, mutable_data<int64_t>(room));
  const NodeWords words{static_cast<uint64_t>(key), first};
  return cluster_nodes(graph, room.size(0), mutable_data<int32_t>(label), rooms, words,
                       together ? Leftover::kTogether : Leftover::kAlone);
}

Tensor contract_clusters(const Tensor& indptr, const Tensor& indices, const OptionalTensor& edge_weight,
                         const Tensor& node_weight, const Tensor& label, const Tensor& start,
                         const OptionalTensor& member, int64_t begin, int64_t end) {
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, label.numel());
  std::vector<ClusterEdge> edges;
  contract_clusters(graph, {data<int64_t>(start), data_or_null<int32_t>(member)}, data<int32_t>(label),
                    start.numel() - 1, begin, end, edges);
  return copied(&edges.data()->cluster, {static_cast<int64_t>(edges.size()), 3});
}

void improve_parts_(const Tensor& indptr, const Tensor& indices, const OptionalTensor& edge_weight,
                    const Tensor& node_weight, const Tensor& part, const Tensor& room, const Tensor& unit,
                    int64_t key) {
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, part.numel());
  const Assignment assignment{room.size(0), mutable_data<int32_t>(part),
                              Rooms(graph.constraints, mutable_data<int64_t>(room)),
                              Excess{data<double>(unit)}};
  improve(graph, assignment, static_cast<uint64_t>(key));
}

std::tuple<Tensor, int64_t, double> solve_partition(const Tensor& indptr, const Tensor& indices,
                                                    const OptionalTensor& edge_weight,
                                                    const Tensor& node_weight, int64_t parts,
                                                    const Tensor& limit, int64_t key) {
  const int64_t nodes = indptr.numel() - 1;
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, nodes);
  const Tensor part = new_array<int32_t>({nodes});
  const Solution found =
      solve(graph, {parts, data<int64_t>(limit), static_cast<uint64_t>(key)}, mutable_data<int32_t>(part));
  return {part, found.cut, found.excess};
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(group_by_owner, "(Tensor owner, int groups) -> (Tensor order, Tensor counts)"),
    OPERATOR(group_by_range, "(Tensor values, Tensor bounds) -> (Tensor order, Tensor counts)"),
    OPERATOR(count_values_, "(Tensor values, int first, Tensor(a!) counts) -> bool"),
    OPERATOR(place_edges_,
             "(Tensor edges, int first, Tensor(a!) cursor, Tensor(b!) indices, Tensor(c!) edge_ids) -> bool"),
    OPERATOR(assign_nodes_,
             "(Tensor indptr, Tensor indices, int first, Tensor weight, Tensor(a!) owner, Tensor found, int "
             "begin, int end, Tensor(b!) load, Tensor limit, bool fennel, bool mend, float alpha, int step, "
             "int key) -> ()"),
    OPERATOR(append_neighbours_,
             "(Tensor rows, int first, Tensor(a!) cursor, Tensor(b!) ids, Tensor(c!)? weights) -> bool"),
    OPERATOR(merge_neighbours,
             "(Tensor indptr, Tensor(a!) ids, Tensor(b!)? weights, int first) -> (Tensor indptr_, Tensor "
             "ids_, Tensor weights_, int uniform)"),
    OPERATOR(number_ghosts_,
             "(Tensor ids, int first, int nodes, int total, Tensor(a!) local) -> Tensor ghosts"),
    OPERATOR(cluster_nodes_,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, Tensor(a!) label, "
             "Tensor(b!) room, int key, int first, bool together) -> int"),
    OPERATOR(contract_clusters,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, Tensor label, Tensor "
             "start, Tensor? member, int begin, int end) -> Tensor"),
    OPERATOR(improve_parts_,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, Tensor(a!) part, "
             "Tensor(b!) room, Tensor unit, int key) -> ()"),
    OPERATOR(solve_partition,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, int parts, Tensor "
             "limit, int key) -> (Tensor part, int cut, float excess)"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
