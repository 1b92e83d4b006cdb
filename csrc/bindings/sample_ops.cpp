#include <memory>
#include <utility>

#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "kernels/permutation.h"
#include "kernels/random.h"
#include "kernels/sample/sample.h"

namespace pyg_batchgnn {
namespace {

// Threads work on different minibatches (BatchGNN, appendix D.3).
template <class Local, class Index>
std::tuple<std::vector<Tensor>, Tensor> sample_all(const TypedGraph<Index>& graph, const Plan& plan,
                                                   const SeedLists& lists, Layout layout, int64_t threads) {
  return sample_each<Local>(lists, {layout, plan.edge_ids}, threads, [&](const Seeds& seeds) {
    const auto scratch = scratches<Index>().borrow();
    return sample_minibatch<Index, Local>(graph, plan, seeds, layout, *scratch);
  });
}

}  // namespace

namespace operators {

Tensor sampled_graph(std::vector<int64_t> num_nodes, std::vector<Tensor> indptr, std::vector<Tensor> indices,
                     std::vector<Tensor> edge_ids, std::vector<int64_t> source, std::vector<int64_t> target,
                     std::vector<int64_t> digest, std::vector<Tensor> order, std::vector<Tensor> weights) {
  const RelationArrays arrays{std::move(indptr), std::move(indices), std::move(edge_ids), std::move(source),
                              std::move(target), std::move(digest),  std::move(order),    std::move(weights)};
  return hold(std::make_unique<HeldGraph>(std::move(num_nodes), arrays));
}

std::tuple<std::vector<Tensor>, Tensor> sample(
    const Tensor& graph, const Tensor& seeds, const Tensor& seed_ptr, const Tensor& keys,
    const std::optional<Tensor>& example, const std::optional<Tensor>& time,
    const std::optional<Tensor>& excluded, int64_t hops, std::vector<int64_t> fanouts,
    const std::optional<Tensor>& shares, bool replace, bool return_edge, bool last, int64_t window,
    bool induced, bool coo, int64_t seed, int64_t epoch, int64_t threads) {
  const Plan plan =
      plan_of({hops, std::move(fanouts), shares, replace, return_edge, last, window, induced}, seed, epoch);
  const auto& whole = held<HeldGraph>(graph);
  const SeedLists lists = seeds_of(seeds, seed_ptr, keys, whole.num_types(), example, time, excluded);
  return whole.with_graph([&](const auto& typed) {
    // PyG's edge_index is int64. The native form takes half of the memory.
    return coo ? sample_all<int64_t>(typed, plan, lists, Layout::kCoo, threads)
               : sample_all<int32_t>(typed, plan, lists, Layout::kCsc, threads);
  });
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
