#include <utility>

#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "kernels/sample/hgt.h"

namespace pyg_batchgnn {
namespace {

template <class Index>
ObjectPool<HgtScratch<Index>>& hgt_scratches() {
  return process_pool<HgtScratch<Index>>();
}

template <class Local, class Index>
std::tuple<std::vector<Tensor>, Tensor> sample_all(const TypedGraph<Index>& graph, const HgtPlan& plan,
                                                   const SeedLists& lists, Layout layout, int64_t threads) {
  return sample_each<Local>(lists, {layout, plan.edge_ids}, threads, [&](const Seeds& seeds) {
    const auto scratch = hgt_scratches<Index>().borrow();
    return sample_hgt<Index, Local>(graph, plan, seeds, layout, *scratch);
  });
}

}  // namespace

namespace operators {

std::tuple<std::vector<Tensor>, Tensor> sample_hgt(const Tensor& graph, const Tensor& seeds,
                                                   const Tensor& seed_ptr, const Tensor& keys, int64_t hops,
                                                   std::vector<int64_t> samples,
                                                   std::vector<int64_t> type_digest, int64_t cap,
                                                   bool return_edge, bool coo, int64_t seed, int64_t epoch,
                                                   int64_t threads) {
  HgtPlan plan{std::move(samples),
               hops,
               cap,
               {type_digest.begin(), type_digest.end()},
               {},
               return_edge,
               static_cast<uint64_t>(seed),
               static_cast<uint64_t>(epoch)};
  const auto& whole = held<HeldGraph>(graph);
  const SeedLists lists = seeds_of(seeds, seed_ptr, keys, whole.num_types());
  return whole.with_graph([&](const auto& typed) {
    plan.relation_order = by_digest(typed.relations);
    return coo ? sample_all<int64_t>(typed, plan, lists, Layout::kCoo, threads)
               : sample_all<int32_t>(typed, plan, lists, Layout::kCsc, threads);
  });
}

}  // namespace operators

void drop_hgt_scratch() {
  hgt_scratches<int32_t>().clear();
  hgt_scratches<int64_t>().clear();
}

}  // namespace pyg_batchgnn
