#include <algorithm>
#include <utility>

#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "kernels/parallel.h"
#include "kernels/permutation.h"
#include "kernels/random.h"
#include "kernels/sample/sample.h"

namespace pyg_batchgnn {
namespace {

// The seeds of all minibatches.
struct AllSeeds {
  const int64_t* node;  // by minibatch, then by type
  const int64_t* ptr;   // [minibatches * types + 1]
  const uint64_t* key;  // [minibatches]
  const int64_t* example;
  const int64_t* time;
  const int64_t* excluded;  // [5, excluded_count], see Seeds
  int64_t excluded_count;
  int64_t minibatches;
  int64_t types;

  // Fills `ptr` with the begin of each type's seeds.
  Seeds of(int64_t minibatch, std::vector<int64_t>* begins) const {
    const int64_t* from = ptr + minibatch * types;
    begins->resize(static_cast<size_t>(types) + 1);
    for (size_t type = 0; type < begins->size(); ++type) (*begins)[type] = from[type] - from[0];
    Seeds seeds{node + from[0], begins->data(), key[minibatch]};
    if (example != nullptr) seeds.example = example + from[0];
    if (time != nullptr) seeds.time = time + from[0];
    seeds.excluded = excluded;
    seeds.excluded_stride = excluded_count;
    const auto [first, last] = std::equal_range(excluded, excluded + excluded_count, minibatch);
    seeds.excluded_begin = first - excluded;
    seeds.excluded_end = last - excluded;
    return seeds;
  }
};

// Threads work on different minibatches (BatchGNN, appendix D.3).
template <class Index, class Local>
std::tuple<std::vector<Tensor>, Tensor> sample_all(const TypedGraph<Index>& graph, const Plan& plan,
                                                   const AllSeeds& lists, Layout layout, int64_t threads) {
  std::vector<SampledMinibatch<Local>> sampled(static_cast<size_t>(lists.minibatches));
  run_tasks(lists.minibatches, threads, [&](int64_t task, int64_t) {
    const auto scratch = scratches<Index>().borrow();
    std::vector<int64_t> begins;
    const Seeds seeds = lists.of(task, &begins);
    sampled[static_cast<size_t>(task)] = sample_minibatch<Index, Local>(graph, plan, seeds, layout, *scratch);
  });
  const auto hops = static_cast<size_t>(plan.hops);
  ArrayList arrays(layout, plan.edge_ids);
  CountTable counts(sampled.size(), graph.num_nodes.size() * (hops + 1) + graph.relations.size() * hops);
  for (SampledMinibatch<Local>& one : sampled) {
    counts.add(one.nodes_per_hop);
    counts.add(one.edges_per_hop);
    for (SampledNodes& nodes : one.nodes) {
      if (nodes.count == 0) continue;
      arrays.add(std::move(nodes.node), nodes.count);
      if (lists.example != nullptr) arrays.add(std::move(nodes.example), nodes.count);
    }
    for (SampledEdges<Local>& edges : one.edges) arrays.add(std::move(edges));
  }
  return {arrays.take(), counts.take()};
}

// Returns the tensor's data, null if it is empty.
template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : data<T>(tensor);
}

// The arrays of the relations, each one per relation; `order` and `weights` may be empty.
struct RelationArrays {
  const std::vector<Tensor>&indptr, &indices, &edge_ids;
  const std::vector<int64_t>&source, &target, &digest;
  const std::vector<Tensor>& order;    // time and position of each relation
  const std::vector<Tensor>& weights;  // sum, weight and positive of each relation
};

template <class Index>
Relation<Index> relation_of(const RelationArrays& arrays, size_t number) {
  Relation<Index> out;
  const Tensor& ids = arrays.edge_ids[number];
  out.edges = {data<int64_t>(arrays.indptr[number]), data<Index>(arrays.indices[number]),
               ids.numel() == 0 ? nullptr : ids.const_data_ptr(), is_wide(ids),
               arrays.indptr[number].numel() - 1};
  out.source = arrays.source[number];
  out.target = arrays.target[number];
  out.digest = static_cast<uint64_t>(arrays.digest[number]);
  if (!arrays.order.empty()) {
    const Tensor& position = arrays.order[2 * number + 1];
    out.time = {data_or_null<int64_t>(arrays.order[2 * number]), position.const_data_ptr(),
                is_wide(position)};
  }
  if (!arrays.weights.empty()) {
    out.weights = {data_or_null<double>(arrays.weights[3 * number]),
                   data_or_null<double>(arrays.weights[3 * number + 1]),
                   data_or_null<int64_t>(arrays.weights[3 * number + 2])};
  }
  return out;
}

}  // namespace

namespace operators {

std::tuple<std::vector<Tensor>, Tensor> sample(
    std::vector<int64_t> num_nodes, std::vector<Tensor> indptr, std::vector<Tensor> indices,
    std::vector<Tensor> edge_ids, std::vector<int64_t> source, std::vector<int64_t> target,
    std::vector<int64_t> digest, std::vector<Tensor> order, std::vector<Tensor> weights, const Tensor& seeds,
    const Tensor& seed_ptr, const Tensor& keys, const std::optional<Tensor>& example,
    const std::optional<Tensor>& time, const std::optional<Tensor>& excluded, int64_t hops,
    std::vector<int64_t> fanouts, const std::optional<Tensor>& shares, bool replace, bool return_edge,
    bool last, int64_t window, bool induced, bool coo, int64_t seed, int64_t epoch, int64_t threads) {
  const auto types = static_cast<int64_t>(num_nodes.size());
  Plan plan{std::move(fanouts), replace ? Replacement::kWith : Replacement::kWithout, return_edge,
            static_cast<uint64_t>(seed), static_cast<uint64_t>(epoch)};
  plan.hops = hops;
  if (shares) plan.shares.assign(data<double>(*shares), data<double>(*shares) + shares->numel());
  plan.temporal = last ? Temporal::kLast : Temporal::kUniform;
  plan.window = window;
  plan.subgraph = induced ? Subgraph::kInduced : Subgraph::kDirectional;
  const AllSeeds lists{data<int64_t>(seeds),
                       data<int64_t>(seed_ptr),
                       reinterpret_cast<const uint64_t*>(data<int64_t>(keys)),
                       example ? data<int64_t>(*example) : nullptr,
                       time ? data<int64_t>(*time) : nullptr,
                       excluded ? data<int64_t>(*excluded) : nullptr,
                       excluded ? excluded->size(1) : 0,
                       keys.numel(),
                       types};
  const Layout layout = coo ? Layout::kCoo : Layout::kCsc;
  const RelationArrays arrays{indptr, indices, edge_ids, source, target, digest, order, weights};
  const auto run = [&](auto type) {
    using Index = decltype(type);
    TypedGraph<Index> graph{std::move(num_nodes), {}};
    for (size_t number = 0; number < indptr.size(); ++number) {
      graph.relations.push_back(relation_of<Index>(arrays, number));
    }
    // PyG's edge_index is int64. The native form takes half of the memory.
    return coo ? sample_all<Index, int64_t>(graph, plan, lists, layout, threads)
               : sample_all<Index, int32_t>(graph, plan, lists, layout, threads);
  };
  return indices.empty() ? run(int64_t{}) : with_integer(indices.front(), run);
}

Tensor keyed_permutation(int64_t n, int64_t seed, int64_t epoch) {
  Buffer<int64_t> order;
  int64_t* out = order.reserve(n + 1);
  const KeyedPermutation permute(static_cast<uint64_t>(n), static_cast<uint64_t>(seed),
                                 static_cast<uint64_t>(epoch));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int64_t>(permute(static_cast<uint64_t>(i)));
  return adopt(std::move(order), {n});
}

int64_t minibatch_key(const Tensor& seeds) {
  return static_cast<int64_t>(pyg_batchgnn::minibatch_key(data<int64_t>(seeds), seeds.numel()));
}

}  // namespace operators

void drop_sampling_scratch() {
  scratches<int32_t>().clear();
  scratches<int64_t>().clear();
}

}  // namespace pyg_batchgnn
