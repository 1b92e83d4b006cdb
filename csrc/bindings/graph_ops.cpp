#include <algorithm>
#include <numeric>

#include "bindings/operators.h"
#include "bindings/process_pool.h"
#include "kernels/csc.h"
#include "kernels/gather.h"
#include "kernels/node_set.h"

namespace pyg_batchgnn {
namespace {

template <class In, class Index, class EdgeId>
ThreeTensors build(const In* sources, const In* destinations, int64_t edges, int64_t nodes) {
  const bool sorted = scan_ascending(destinations, edges);
  const Tensor indptr = new_array<int64_t>({nodes + 1}), indices = new_array<Index>({edges});
  const Tensor edge_ids = new_array<EdgeId>({sorted ? 0 : edges});
  count_destinations(destinations, edges, nodes, mutable_data<int64_t>(indptr));
  fill_csc(sources, destinations, edges, nodes, data<int64_t>(indptr), mutable_data<Index>(indices),
           sorted ? nullptr : mutable_data<EdgeId>(edge_ids));
  return {indptr, indices, edge_ids};
}

template <class In, class Index>
ThreeTensors build_for_edges(const Tensor& edge_index, int64_t nodes) {
  const int64_t edges = edge_index.size(1);
  const In* sources = data<In>(edge_index);
  const In* destinations = sources + edge_index.stride(0);
  if (fits_int32(edges)) return build<In, Index, int32_t>(sources, destinations, edges, nodes);
  return build<In, Index, int64_t>(sources, destinations, edges, nodes);
}

int64_t bytes_of_row(const Tensor& table) {
  const auto item = static_cast<int64_t>(table.element_size());
  const auto sizes = table.sizes();
  return std::accumulate(sizes.begin() + 1, sizes.end(), item, std::multiplies<>());
}

// Returns the distinct nodes, and prepares the set for `rank`.
Tensor list_nodes(NodeSet& set, const std::vector<Tensor>& nodes, int64_t num_nodes) {
  set.begin(num_nodes);
  for (const Tensor& node : nodes) set.add(data<int64_t>(node), node.numel());
  const int64_t count = set.size();
  Buffer<int64_t> unique;
  set.list(unique.reserve(count + 2));
  return adopt(std::move(unique), {count});
}

}  // namespace

namespace operators {

ThreeTensors build_csc(const Tensor& edge_index, int64_t num_nodes) {
  return with_integer(edge_index, [&](auto in) {
    using In = decltype(in);
    return fits_int32(num_nodes) ? build_for_edges<In, int32_t>(edge_index, num_nodes)
                                 : build_for_edges<In, int64_t>(edge_index, num_nodes);
  });
}

std::tuple<int64_t, int64_t> extent(const Tensor& values, int64_t threads) {
  const Extent found = with_integer(values, [&](auto type) {
    return pyg_batchgnn::extent(data<decltype(type)>(values), values.numel(), threads);
  });
  return {found.low, found.high};
}

bool is_ascending(const Tensor& values) {
  return with_integer(
      values, [&](auto type) { return scan_ascending(data<decltype(type)>(values), values.numel()); });
}

Tensor sum_lists(const Tensor& indptr, const Tensor& values) {
  Tensor sums = new_array<double>({values.numel()});
  pyg_batchgnn::sum_lists(data<int64_t>(indptr), indptr.numel() - 1, data<double>(values),
                          mutable_data<double>(sums));
  return sums;
}

void put_rows(const Tensor& table, const OptionalTensor& index, const Tensor& out, int64_t threads) {
  const auto item = static_cast<int64_t>(table.element_size());
  const int64_t row_bytes = bytes_of_row(table), stride = table.stride(0) * item;
  const auto* from = data<char>(table);
  const RowsOut to{mutable_data<char>(out), out.stride(0) * item};
  if (!index) return copy_rows(from, row_bytes, stride, out.size(0), to, threads);
  with_integer(*index, [&](auto type) {
    pyg_batchgnn::gather_rows(from, row_bytes, stride, data<decltype(type)>(*index), index->numel(), to,
                              threads);
  });
}

Tensor gather_rows(const Tensor& table, const Tensor& index, int64_t threads) {
  std::vector<int64_t> sizes(table.sizes().begin(), table.sizes().end());
  sizes[0] = index.numel();
  Tensor out = new_items(sizes, table.scalar_type(), table.element_size());
  put_rows(table, index, out, threads);
  return out;
}

void put_decoded(const Tensor& codes, const Tensor& decoding, const OptionalTensor& index, const Tensor& out,
                 int64_t threads) {
  const Element element = element_of(out.scalar_type());
  const RowsOut to{mutable_data<char>(out), out.stride(0) * element_bytes(element)};
  pyg_batchgnn::gather_decoded(matrix(codes, decoding), decoding.size(1), integers(index), out.size(0), to,
                               element, threads);
}

Tensor gather_decoded(const Tensor& codes, const Tensor& decoding, const OptionalTensor& index,
                      ScalarType out_dtype, int64_t threads) {
  std::vector<int64_t> sizes(codes.sizes().begin(), codes.sizes().end());
  if (index) sizes[0] = index->numel();
  Tensor out = new_tensor(sizes, out_dtype);
  put_decoded(codes, decoding, index, out, threads);
  return out;
}

Tensor list_unique_nodes(const std::vector<Tensor>& nodes, int64_t num_nodes) {
  const auto loan = process_pool<NodeSet>().borrow();
  return list_nodes(*loan, nodes, num_nodes);
}

std::tuple<Tensor, std::vector<Tensor>> unique_nodes(const std::vector<Tensor>& nodes, int64_t num_nodes) {
  const auto loan = process_pool<NodeSet>().borrow();
  NodeSet& set = *loan;
  Tensor unique = list_nodes(set, nodes, num_nodes);
  std::vector<Tensor> rows;
  rows.reserve(nodes.size());
  for (const Tensor& node : nodes) {
    rows.push_back(new_array<int64_t>({node.numel()}));
    set.rank(data<int64_t>(node), node.numel(), mutable_data<int64_t>(rows.back()));
  }
  return {std::move(unique), std::move(rows)};
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(build_csc,
             "(Tensor edge_index, int num_nodes) -> (Tensor indptr, Tensor indices, Tensor edge_ids)"),
    OPERATOR(extent, "(Tensor values, int threads) -> (int low, int high)"),
    OPERATOR(is_ascending, "(Tensor values) -> bool"),
    OPERATOR(sum_lists, "(Tensor indptr, Tensor values) -> Tensor"),
    OPERATOR(gather_rows, "(Tensor table, Tensor index, int threads) -> Tensor"),
    OPERATOR(put_rows, "(Tensor table, Tensor? index, Tensor(a!) out, int threads) -> ()"),
    OPERATOR(gather_decoded,
             "(Tensor codes, Tensor decoding, Tensor? index, ScalarType out_dtype, int threads) -> Tensor"),
    OPERATOR(put_decoded,
             "(Tensor codes, Tensor decoding, Tensor? index, Tensor(a!) out, int threads) -> ()"),
    OPERATOR(unique_nodes, "(Tensor[] nodes, int num_nodes) -> (Tensor unique, Tensor[] rows)"),
    OPERATOR(list_unique_nodes, "(Tensor[] nodes, int num_nodes) -> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
