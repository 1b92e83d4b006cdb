#include <utility>

#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "kernels/parallel.h"
#include "kernels/permutation.h"
#include "kernels/sample.h"

namespace pyg_batchgnn {
namespace {

// The seed nodes of all minibatches, concatenated.
struct Seeds {
  const int64_t* node;
  const int64_t* ptr;  // [minibatches + 1]
  int64_t minibatches;
};

// Threads work on different minibatches (BatchGNN, appendix D.3).
template <class Index, class Local>
std::vector<Sampled<Local>> sample_all(const Csc<Index>& graph, const Plan& plan, const Seeds& seeds,
                                       Layout layout, int64_t threads) {
  std::vector<Sampled<Local>> sampled(static_cast<size_t>(seeds.minibatches));
  run_tasks(seeds.minibatches, threads, [&](int64_t task, int64_t) {
    const auto scratch = scratches<Index>().borrow();
    const int64_t first = seeds.ptr[task];
    sampled[static_cast<size_t>(task)] = sample_minibatch<Index, Local>(
        graph, plan, seeds.node + first, seeds.ptr[task + 1] - first, layout, *scratch);
  });
  return sampled;
}

}  // namespace

namespace operators {

std::tuple<std::vector<Tensor>, Tensor> sample(const Tensor& indptr, const Tensor& indices,
                                               const std::optional<Tensor>& edge_ids, const Tensor& seeds,
                                               const Tensor& seed_ptr, std::vector<int64_t> fanouts,
                                               bool replace, bool return_edge, bool coo, int64_t seed,
                                               int64_t epoch, int64_t threads) {
  const size_t hops = fanouts.size();
  const Plan plan{std::move(fanouts), replace ? Replacement::kWith : Replacement::kWithout, return_edge,
                  static_cast<uint64_t>(seed), static_cast<uint64_t>(epoch)};
  const Seeds all{data<int64_t>(seeds), data<int64_t>(seed_ptr), seed_ptr.numel() - 1};
  const Layout layout = coo ? Layout::kCoo : Layout::kCsc;
  return with_integer(indices, [&](auto type) {
    using Index = decltype(type);
    const bool translated = edge_ids.has_value();
    const Csc<Index> graph{data<int64_t>(indptr), data<Index>(indices),
                           translated ? edge_ids->const_data_ptr() : nullptr,
                           translated && is_wide(*edge_ids), indptr.numel() - 1};
    // PyG's edge_index is int64. The native form takes half of the memory.
    if (coo) {
      return to_tensors(sample_all<Index, int64_t>(graph, plan, all, layout, threads), hops, layout,
                        return_edge);
    }
    return to_tensors(sample_all<Index, int32_t>(graph, plan, all, layout, threads), hops, layout,
                      return_edge);
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
