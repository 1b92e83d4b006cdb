#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "kernels/random.h"
#include "kernels/sample/hgt.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/tokens.h"

namespace pyg_batchgnn {
namespace {

// Threads work on different minibatches (BatchGNN, appendix D.3). `kernel` samples one.
template <class ScratchT, class Graph, class PlanT, class Kernel>
Minibatches sample_all(const Graph& graph, const PlanT& plan, const SeedLists& lists, bool coo,
                       int64_t threads, const Kernel& kernel) {
  return sample_each(lists, {coo, plan.edge_ids}, threads, [&](const Seeds& seeds) {
    return kernel(graph, plan, seeds, *process_pool<ScratchT>().borrow());
  });
}

}  // namespace

namespace operators {

Tensor sampled_graph(std::vector<int64_t> num_nodes, std::vector<Tensor> indptr, std::vector<Tensor> indices,
                     std::vector<Tensor> edge_ids, std::vector<int64_t> source, std::vector<int64_t> target,
                     std::vector<int64_t> digest, std::vector<int64_t> source_digest,
                     std::vector<Tensor> order, std::vector<Tensor> weights, std::vector<Tensor> source_ids) {
  const RelationArrays arrays{std::move(indptr),        std::move(indices), std::move(edge_ids),
                              std::move(source),        std::move(target),  std::move(digest),
                              std::move(source_digest), std::move(order),   std::move(weights),
                              std::move(source_ids)};
  return hold(std::make_unique<HeldGraph>(std::move(num_nodes), arrays));
}

Tensor sampling_rules(int64_t hops, std::vector<int64_t> fanouts, const OptionalTensor& shares,
                      const std::vector<std::string>& names, const std::vector<int64_t>& values) {
  Plan plan{std::move(fanouts), Replacement::kWithout, false, 0, 0, hops};
  if (shares) plan.shares.assign(data<double>(*shares), data<double>(*shares) + shares->numel());
  for (size_t at = 0; at < names.size(); ++at) plan.set(names[at], values.at(at));
  return hold(std::make_unique<Plan>(std::move(plan)));
}

Tensor budget_rules(int64_t hops, std::vector<int64_t> samples, std::vector<int64_t> type_digest, int64_t cap,
                    bool return_edge) {
  HgtPlan plan{std::move(samples), hops, cap, {type_digest.begin(), type_digest.end()}, {},
               return_edge,        0,    0};
  return hold(std::make_unique<HgtPlan>(std::move(plan)));
}

Minibatches sample(const Tensor& graph, const Tensor& rules, const Tensor& seeds, const Tensor& seed_ptr,
                   const Tensor& keys, const OptionalTensor& example, const OptionalTensor& time,
                   const OptionalTensor& excluded, bool coo, int64_t seed, int64_t epoch, int64_t threads) {
  const auto plan = plan_of<Plan>(rules, seed, epoch);
  const auto& whole = held<HeldGraph>(graph);
  const SeedLists lists = seeds_of(seeds, seed_ptr, keys, whole.num_types(), example, time, excluded);
  return whole.with_graph([&]<class Index>(const TypedGraph<Index>& typed) {
    return sample_all<Scratch<Index>>(typed, plan, lists, coo, threads, sample_minibatch<Index>);
  });
}

Tensor keyed_permutation(int64_t n, int64_t seed, int64_t epoch) {
  Tensor order = new_array<int64_t>({n});
  auto* const out = mutable_data<int64_t>(order);
  const KeyedPermutation permute(static_cast<uint64_t>(n), static_cast<uint64_t>(seed),
                                 static_cast<uint64_t>(epoch));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int64_t>(permute(static_cast<uint64_t>(i)));
  return order;
}

Tensor list_tokens(const Tensor& seed_type, const Tensor& seed_row, const std::vector<int64_t>& num_nodes,
                   const std::vector<int64_t>& source, const std::vector<int64_t>& target,
                   const std::vector<Tensor>& indptr, const std::vector<Tensor>& indices, int64_t count) {
  std::vector<std::vector<TokenEdges>> into(num_nodes.size());
  for (size_t at = 0; at < indptr.size(); ++at) {
    into[static_cast<size_t>(target[at])].push_back({static_cast<int64_t>(at), source[at],
                                                     indptr[at].numel() - 1, data<int64_t>(indptr[at]),
                                                     integers(indices[at])});
  }
  const int64_t seeds = seed_row.numel();
  const Tensor table = new_array<int64_t>({6, seeds, count});
  fill_tokens(data<int64_t>(seed_type), data<int64_t>(seed_row), num_nodes, into,
              {seeds, count, mutable_data<int64_t>(table)});
  return table;
}

int64_t minibatch_key(const Tensor& seeds) {
  return static_cast<int64_t>(pyg_batchgnn::minibatch_key(data<int64_t>(seeds), seeds.numel()));
}

Minibatches sample_hgt(const Tensor& graph, const Tensor& rules, const Tensor& seeds, const Tensor& seed_ptr,
                       const Tensor& keys, bool coo, int64_t seed, int64_t epoch, int64_t threads) {
  auto plan = plan_of<HgtPlan>(rules, seed, epoch);
  const auto& whole = held<HeldGraph>(graph);
  const SeedLists lists = seeds_of(seeds, seed_ptr, keys, whole.num_types());
  return whole.with_graph([&]<class Index>(const TypedGraph<Index>& typed) {
    plan.relation_order = by_digest(typed.relations);
    return sample_all<HgtScratch<Index>>(typed, plan, lists, coo, threads, pyg_batchgnn::sample_hgt<Index>);
  });
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(sampled_graph,
             "(int[] num_nodes, Tensor[] indptr, Tensor[] indices, Tensor[] edge_ids, int[] source, int[] "
             "target, int[] digest, int[] source_digest, Tensor[] order, Tensor[] weights, Tensor[] "
             "source_ids) -> Tensor"),
    OPERATOR(sampling_rules,
             "(int hops, int[] fanouts, Tensor? shares, str[] names, int[] values) -> Tensor"),
    OPERATOR(budget_rules,
             "(int hops, int[] samples, int[] type_digest, int cap, bool return_edge) -> Tensor"),
    OPERATOR(sample,
             "(Tensor graph, Tensor rules, Tensor seeds, Tensor seed_ptr, Tensor keys, Tensor? example, "
             "Tensor? time, Tensor? excluded, bool coo, int seed, int epoch, int threads) -> (Tensor[] "
             "arrays, Tensor counts)"),
    OPERATOR(sample_hgt,
             "(Tensor graph, Tensor rules, Tensor seeds, Tensor seed_ptr, Tensor keys, bool coo, int seed, "
             "int epoch, int threads) -> (Tensor[] arrays, Tensor counts)"),
    OPERATOR(keyed_permutation, "(int n, int seed, int epoch) -> Tensor"),
    OPERATOR(minibatch_key, "(Tensor seeds) -> int"),
    OPERATOR(list_tokens,
             "(Tensor seed_type, Tensor seed_row, int[] num_nodes, int[] source, int[] target, Tensor[] "
             "indptr, Tensor[] indices, int count) -> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
