// What the multilevel partitioner asks for, on random graphs; test_sanitizers.py compiles it with
// sanitizers. Arrays are exactly as long as they must be.
#include <vector>

#include "inputs.h"
#include "kernels/partition/lists.h"
#include "kernels/partition/multilevel/coarsen.h"
#include "kernels/partition/multilevel/refine.h"
#include "kernels/partition/multilevel/solve.h"

using namespace pyg_batchgnn;

namespace {

template <class Id>
struct Lists {
  std::vector<int64_t> indptr;
  std::vector<Id> ids;
  std::vector<int32_t> weights;  // empty if edges have none
};

// Random lists of the nodes [first, first + nodes), with `total` nodes in all: both directions of
// each edge, parallel edges and loops among them, which are merged.
template <class Id, class Word>
Lists<Id> merged_lists(int64_t first, int64_t nodes, int64_t total, int64_t edges, bool weighted) {
  const int64_t columns = weighted ? 3 : 2;
  std::vector<Word> rows;
  std::vector<int64_t> indptr(size(nodes + 1));
  const auto append = [&](int64_t list, int64_t neighbour, int64_t weight) {
    rows.push_back(static_cast<Word>(list));
    rows.push_back(static_cast<Word>(neighbour));
    if (weighted) rows.push_back(static_cast<Word>(weight));
    ++indptr[size(list - first + 1)];
  };
  for (int64_t e = 0; e < edges; ++e) {
    const int64_t one = first + below(nodes), other = below(total), weight = 1 + below(5);
    append(one, other, weight);
    if (other >= first && other < first + nodes) append(other, one, weight);
  }
  for (int64_t node = 0; node < nodes; ++node) indptr[size(node + 1)] += indptr[size(node)];
  const int64_t count = indptr[size(nodes)];
  std::vector<int64_t> cursor(indptr.begin(), indptr.end() - 1);
  Lists<Id> read{indptr, std::vector<Id>(size(count)), std::vector<int32_t>(size(weighted ? count : 0))};
  int32_t* const weights = weighted ? read.weights.data() : nullptr;
  const auto fill = [&](int64_t places) {
    return append_edges(
        rows.data(), count, columns,
        GrowingLists<Id, int32_t>{first, nodes, places, cursor.data(), read.ids.data(), weights});
  };
  expect(fill(count));
  if (count > 0) expect(!fill(0));  // no place is left

  Lists<Id> merged{std::vector<int64_t>(size(nodes + 1)), {}, {}};
  const Merged found =
      sort_lists(first, nodes, indptr.data(), read.ids.data(), weights, merged.indptr.data());
  merged.ids.resize(size(found.edges));
  merged.weights.resize(size(found.edges));
  merge_lists(first, nodes, indptr.data(), read.ids.data(), weights, merged.indptr.data(), merged.ids.data(),
              merged.weights.data());
  result(merged.ids);
  result(merged.weights);
  return merged;
}

std::vector<int32_t> node_weights(int64_t nodes, int64_t constraints) {
  std::vector<int32_t> weights(size(nodes * constraints));
  for (int64_t at = 0; at < nodes * constraints; ++at)
    weights[size(at)] = at % constraints == 0 ? 1 : static_cast<int32_t>(below(3));
  return weights;
}

void solves(int64_t nodes, int64_t edges, int64_t parts, int64_t constraints, bool weighted) {
  const Lists<int32_t> lists = merged_lists<int32_t, int32_t>(0, nodes, nodes, edges, weighted);
  const std::vector<int32_t> weight = node_weights(nodes, constraints);
  const WeightedGraph graph{nodes,
                            0,
                            constraints,
                            lists.indptr.data(),
                            lists.ids.data(),
                            weighted ? lists.weights.data() : nullptr,
                            weight.data()};
  std::vector<int64_t> limit(size(constraints));
  for (int64_t node = 0; node < nodes; ++node)
    for (int64_t k = 0; k < constraints; ++k) limit[size(k)] += graph.weights_of(node)[k];
  for (int64_t& most : limit) most = most / parts + 2;
  std::vector<int32_t> part(size(nodes));
  const Solution solution = solve(graph, {parts, limit.data(), 11}, part.data());
  result(part);
  int64_t cut = 0;
  for (int64_t node = 0; node < nodes; ++node) {
    expect(part[size(node)] >= 0 && part[size(node)] < parts);
    for (int64_t e = lists.indptr[size(node)]; e < lists.indptr[size(node + 1)]; ++e)
      if (part[size(node)] != part[size(lists.ids[size(e)])]) cut += graph.weight_of(e);
  }
  expect(solution.cut == cut || 2 * solution.cut == cut);
}

// The share of one process: neighbours of other processes are ghosts.
template <class Id, class Word>
void share(int64_t first, int64_t nodes, int64_t total, int64_t edges, int64_t parts) {
  const Lists<Id> lists = merged_lists<Id, Word>(first, nodes, total, edges, true);
  const int64_t count = static_cast<int64_t>(lists.ids.size());
  std::vector<int32_t> local(size(count));
  const std::vector<Id> ghost = number_ghosts(lists.ids.data(), count, first, nodes, total, local.data());
  const int64_t all = nodes + static_cast<int64_t>(ghost.size());
  const std::vector<int32_t> weight = node_weights(nodes, 2);
  const WeightedGraph graph{
      nodes, all - nodes, 2, lists.indptr.data(), local.data(), lists.weights.data(), weight.data()};

  std::vector<int32_t> label(size(all));
  for (int64_t node = 0; node < all; ++node) label[size(node)] = static_cast<int32_t>(node);
  std::vector<int64_t> room(size(2 * all), 6);
  for (int64_t round = 0; round < 2; ++round)
    cluster_nodes(graph, all, label.data(), Rooms(2, room.data()),
                  {fold(5, static_cast<uint64_t>(round)), first}, Leftover::kTogether);
  std::vector<int64_t> start(size(all + 1));
  for (int64_t node = 0; node < nodes; ++node) ++start[size(label[size(node)] + 1)];
  for (int64_t cluster = 0; cluster < all; ++cluster) start[size(cluster + 1)] += start[size(cluster)];
  std::vector<int64_t> cursor(start.begin(), start.end() - 1);
  std::vector<int32_t> member(size(nodes));
  for (int64_t node = 0; node < nodes; ++node)
    member[size(cursor[size(label[size(node)])]++)] = static_cast<int32_t>(node);
  std::vector<ClusterEdge> found;
  contract_clusters(graph, {start.data(), member.data()}, label.data(), all, 0, all, found);
  for (const ClusterEdge& edge : found) expect(edge.cluster != edge.neighbour && edge.weight > 0);

  std::vector<int32_t> part(size(all));
  for (int32_t& one : part) one = static_cast<int32_t>(below(parts));
  std::vector<int64_t> left(size(2 * parts), 2 * nodes / parts + 1);
  for (int64_t node = 0; node < nodes; ++node)
    for (int64_t k = 0; k < 2; ++k) left[size(2 * part[size(node)] + k)] -= graph.weights_of(node)[k];
  const std::vector<double> unit(2, 0.01);
  const Assignment assignment{parts, part.data(), Rooms(2, left.data()), Excess{unit.data()}};
  balance_parts(graph, assignment);
  refine_by_fm(graph, assignment, {5, 2, 100});
  move_greedily(graph, assignment);
  result(part);
  for (const int32_t one : part) expect(one >= 0 && one < parts);
}

}  // namespace

int main() {
  for (const bool weighted : {false, true})
    for (const int64_t parts : {1, 2, 7})
      for (const int64_t constraints : {1, 3}) {
        solves(1, 0, 1, constraints, weighted);
        solves(40, 100, parts, constraints, weighted);
        solves(3000, 9000, parts, constraints, weighted);
      }
  for (const int64_t parts : {1, 3}) {
    share<int32_t, int32_t>(0, 50, 150, 400, parts);
    share<int32_t, int64_t>(50, 50, 150, 400, parts);
    share<int64_t, int32_t>(100, 50, 150, 0, parts);
    share<int64_t, int64_t>(100, 50, 150, 400, parts);
  }
  return done();
}
