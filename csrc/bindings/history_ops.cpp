#include "bindings/operators.h"
#include "kernels/history.h"

namespace pyg_batchgnn {
namespace {

CacheLines cache_of(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends) {
  const int64_t lines = links.size(1);
  auto* link = mutable_data<int32_t>(links);
  auto* node = mutable_data<int64_t>(named);
  return {mutable_data<int32_t>(slot), slot.numel(), node, node + lines, link, link + lines,
          mutable_data<int64_t>(ends), lines};
}

}  // namespace

namespace operators {

Tensor history_search(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends,
                      const Tensor& node, int64_t since, int64_t threads) {
  Tensor line = new_array<int32_t>({node.numel()});
  search_lines(cache_of(slot, named, links, ends), data<int64_t>(node), node.numel(), since,
               mutable_data<int32_t>(line), threads);
  return line;
}

Tensor history_store_(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends,
                      const Tensor& node, const Tensor& step) {
  Tensor line = new_array<int32_t>({node.numel()});
  CacheLines cache = cache_of(slot, named, links, ends);
  store_lines(cache, data<int64_t>(node), data<int64_t>(step), node.numel(), mutable_data<int32_t>(line));
  return line;
}

Tensor history_lines(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends) {
  Tensor line = new_array<int32_t>({data<int64_t>(ends)[2]});
  list_lines(cache_of(slot, named, links, ends), mutable_data<int32_t>(line));
  return line;
}

ThreeTensors history_layer(const Tensor& indptr, const Tensor& source, const Tensor& cached, int64_t targets,
                           int64_t own_nodes, int64_t own_rows, int64_t threads) {
  const HaloLayer layer{data<int64_t>(indptr), data<int32_t>(source), targets, own_nodes, own_rows,
                        data<int32_t>(cached), cached.numel()};
  const Tensor begins = new_array<int64_t>({targets + 1});
  const bool fits = count_rows_of_halo(layer, mutable_data<int64_t>(begins), threads);
  const int64_t edges = fits ? data<int64_t>(begins)[targets] : 0;
  const Tensor rows = new_array<int32_t>({edges}), place = new_array<int64_t>({edges});
  // No list of edges that begin anywhere says that a source is none of the layer.
  if (!fits) return {new_array<int64_t>({0}), rows, place};
  fill_rows_of_halo(layer, data<int64_t>(begins), mutable_data<int32_t>(rows), mutable_data<int64_t>(place),
                    threads);
  return {begins, rows, place};
}

std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>> history_choose(
    const Tensor& ptr, const Tensor& peer, const Tensor& degree, const Tensor& row, const Tensor& name,
    int64_t peers, int64_t most, int64_t key, int64_t threads) {
  const HaloPeers halo{data<int64_t>(ptr), data<int32_t>(peer), data<int32_t>(degree), ptr.numel() - 1};
  const PushRules rules{peers, most, static_cast<uint64_t>(key)};
  Pushed pushed = choose_pushed(halo, data<int64_t>(row), data<int64_t>(name), row.numel(), rules, threads);
  return {adopt(std::move(pushed.place), {sum_of(pushed.counts)}), pushed.counts, pushed.candidates};
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(history_search,
             "(Tensor slot, Tensor named, Tensor links, Tensor ends, Tensor node, int since, int threads) "
             "-> Tensor"),
    OPERATOR(history_store_,
             "(Tensor(a!) slot, Tensor(b!) named, Tensor(c!) links, Tensor(d!) ends, Tensor node, Tensor "
             "step) -> Tensor"),
    OPERATOR(history_lines, "(Tensor slot, Tensor named, Tensor links, Tensor ends) -> Tensor"),
    OPERATOR(history_layer,
             "(Tensor indptr, Tensor source, Tensor cached, int targets, int own_nodes, int own_rows, int "
             "threads) -> (Tensor indptr, Tensor source, Tensor place)"),
    OPERATOR(history_choose,
             "(Tensor ptr, Tensor peer, Tensor degree, Tensor row, Tensor name, int peers, int most, int "
             "key, int threads) -> (Tensor place, int[] counts, int[] candidates)"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
