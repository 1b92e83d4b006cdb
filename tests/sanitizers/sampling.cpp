// Runs every kernel on random graphs; test_sanitizers.py compiles it with sanitizers.
#include <algorithm>
#include <vector>

#include "inputs.h"
#include "kernels/csc.h"
#include "kernels/gather.h"
#include "kernels/node_set.h"
#include "kernels/parallel.h"
#include "kernels/sample/sample.h"
#include "relay.h"
#include "typed.h"

using namespace pyg_batchgnn;

namespace {

std::vector<int64_t> many_below(int64_t count, int64_t n) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t& value : values) value = below(n);
  return values;
}

template <class Index>
struct Graph {
  int64_t nodes;
  std::vector<int64_t> indptr;
  std::vector<Index> indices;
  std::vector<int32_t> edge_ids;
};

// Half of the edges go to one node in ten, some nodes have none.
template <class Index>
Graph<Index> random_graph(int64_t nodes, int64_t edges) {
  const std::vector<int64_t> sources = many_below(edges, nodes);
  std::vector<int64_t> destinations = many_below(edges, nodes);
  for (int64_t e = 0; e < edges; e += 2) destinations[static_cast<size_t>(e)] /= 10;
  Graph<Index> graph{nodes, std::vector<int64_t>(static_cast<size_t>(nodes) + 1),
                     std::vector<Index>(static_cast<size_t>(edges)),
                     std::vector<int32_t>(static_cast<size_t>(edges))};
  count_destinations(destinations.data(), edges, nodes, graph.indptr.data());
  fill_csc(sources.data(), destinations.data(), edges, nodes, graph.indptr.data(), graph.indices.data(),
           graph.edge_ids.data());
  return graph;
}

// Checks that the distinct ids of a type are found again at their ranks.
void check_ranks(const SampledNodes& found, int64_t num_nodes) {
  NodeSet set;
  set.begin(num_nodes);
  set.add(found.node.data(), found.count);
  std::vector<int64_t> unique(static_cast<size_t>(set.size()) + 2), row(static_cast<size_t>(found.count));
  set.list(unique.data());
  set.rank(found.node.data(), found.count, row.data());
  for (int64_t i = 0; i < found.count; ++i) {
    if (unique[static_cast<size_t>(row[static_cast<size_t>(i)])] != found.node.data()[i]) std::abort();
  }
}

template <class Index>
void sample_all(const Graph<Index>& graph, const Plan& plan, bool translate) {
  const Csc<Index> csc{graph.indptr.data(),
                       graph.indices.data(),
                       {translate ? graph.edge_ids.data() : nullptr, false},
                       graph.nodes};
  const TypedGraph<Index> typed{{graph.nodes}, {Relation<Index>{csc}}};
  std::vector<Scratch<Index>> scratch(3);
  run_tasks(12, 3, [&](int64_t task, int64_t slot) {
    std::vector<int64_t> seeds(static_cast<size_t>(task * 5));
    for (size_t i = 0; i < seeds.size(); ++i) seeds[i] = static_cast<int64_t>(i * i + i / 2) % graph.nodes;
    const int64_t ends[] = {0, static_cast<int64_t>(seeds.size())};
    const SampledMinibatch sampled =
        sample_minibatch(typed, plan, {seeds.data(), ends, minibatch_key(seeds.data(), ends[1])},
                         scratch[static_cast<size_t>(slot)]);
    check_ranks(sampled.nodes[0], graph.nodes);
    result(sampled);
  });
}

template <class Index>
void relay_all(const Graph<Index>& graph, const Plan& plan) {
  const Csc<Index> csc{
      graph.indptr.data(), graph.indices.data(), {graph.edge_ids.data(), false}, graph.nodes};
  const TypedGraph<Index> typed{{graph.nodes}, {Relation<Index>{csc}}};
  const auto parts = static_cast<size_t>(below(16) != 0 ? 1 + below(4) : 20);
  relay<Index, SharedNodes>(typed, plan, parts, false, generator);
}

void decode(int64_t rows, int64_t columns, int64_t count, Element element) {
  const std::vector<char> table = numbers(rows * columns, Element::kInt8);
  const Decodings by(columns, Element::kInt8);
  std::vector<int32_t> index(size(count));
  for (int32_t& one : index) one = static_cast<int32_t>(below(rows));
  const int64_t bytes = columns * element_bytes(element);
  std::vector<char> out(size(count * bytes));
  gather_decoded({table.data(), Element::kInt8, columns, by.get()}, columns, {index.data(), false}, count,
                 {out.data(), bytes}, element, 3);
  result(out);
}

void gather(int64_t rows, int64_t bytes, int64_t count) {
  const std::vector<char> table(static_cast<size_t>(rows * bytes), 'x');
  const std::vector<int64_t> index = many_below(count, rows);
  std::vector<char> out(static_cast<size_t>(count * bytes));
  gather_rows(table.data(), bytes, bytes, index.data(), count, {out.data(), bytes}, 3);
  result(out);
}

template <class Index>
void round_of(int64_t nodes, int64_t edges) {
  const Graph<Index> graph = random_graph<Index>(nodes, edges);
  const std::vector<std::vector<int64_t>> fanouts{{3, 2}, {-1}, {0, 4}, {60, 5}, {4, 4, 4, 4, 4}};
  for (const std::vector<int64_t>& fanout : fanouts) {
    for (const Replacement replacement : {Replacement::kWithout, Replacement::kWith}) {
      const bool edge_ids = below(2) == 0;
      const Plan plan{fanout, replacement, edge_ids, generator(), generator()};
      sample_all(graph, plan, below(2) == 0);
      sample_all(graph, plan, below(2) == 0);
      relay_all(graph, plan);
    }
    Plan shared{fanout, Replacement::kWithout, true, generator(), generator()};
    shared.labor = static_cast<Labor>(1 + below(3));
    sample_all(graph, shared, below(2) == 0);
    relay_all(graph, shared);
  }
}

// Any words as questions to the owner of nodes.
template <class Index>
void ask(const QuestionShape& shape) {
  const Graph<Index> edges = random_graph<Index>(1 + below(20), below(60));
  const std::vector<int64_t> times(edges.indices.size());
  const Integers ids{edges.edge_ids.data(), false};
  TypedGraph<Index> graph{{edges.nodes}, {{{edges.indptr.data(), edges.indices.data(), ids, edges.nodes}}}};
  if (shape.timed) graph.relations[0].time = {times.data(), {}};
  const Parts<Index> parts(graph, 2, generator);
  std::vector<Index> words(size(below(40)));
  for (Index& word : words) word = static_cast<Index>(below(6) ? below(9) : any_number());
  std::vector<ReadBlock<Index>> blocks;
  const auto count = static_cast<int64_t>(words.size());
  if (read_blocks(words.data(), count, shape, &blocks) && count > 0) {
    int64_t total = 1;
    for (const ReadBlock<Index>& block : blocks)
      total += head_words<Index>(shape) + body_words<Index>(shape, block.size);
    expect(total == count);
  }
  Plan plan{{1 + below(4)}, static_cast<Replacement>(below(2)), true, 1, 2};
  const int64_t hop = below(2);  // behind the last one that of an induced subgraph
  if (hop == 1) plan.subgraph = Subgraph::kInduced;
  ObjectPool<Scratch<Index>> scratches;
  const Answers out =
      answer<Index>(parts.part(size(below(2))), plan, hop, {words.data(), {count}, shape}, 1, scratches);
  expect(out.fault || out.words_to.size() == 1);
}

void messages() {
  const bool disjoint = below(2), timed = below(2);
  ask<int32_t>({1, disjoint, disjoint && timed, below(2) == 0});
  ask<int64_t>({1, disjoint, disjoint && timed, below(2) == 0});
}

}  // namespace

int main() {
  for (const int64_t nodes : {1, 63, 64, 65, 1000}) {
    for (const int64_t edges : {int64_t{0}, nodes * 3, std::min<int64_t>(nodes * 200, 20'000)}) {
      round_of<int32_t>(nodes, edges);
      round_of<int64_t>(nodes, edges);
    }
  }
  for (int64_t round = 0; round < 3'000; ++round) messages();
  for (int64_t round = 0; round < 24; ++round) {
    TypedRound<int32_t>(generator).run();
    TypedRound<int64_t>(generator).run();
  }
  for (const int64_t columns : {1, 7, 8, 15, 16, 17, 33, 100, 300}) {
    for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
      decode(97, columns, 300'000 / columns, element);
    }
  }
  for (const int64_t bytes : {1, 2, 3, 4, 8, 12, 63, 64, 65, 400, 5000}) gather(97, bytes, 3'000'000 / bytes);
  return done();
}
