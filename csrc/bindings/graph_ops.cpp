#include <algorithm>
#include <numeric>

#include "bindings/operators.h"
#include "bindings/process_pool.h"
#include "kernels/csc.h"
#include "kernels/gather.h"
#include "kernels/node_set.h"

namespace pyg_batchgnn {
namespace {

ObjectPool<NodeSet>& node_sets() { return process_pool<NodeSet>(); }

template <class In, class Index, class EdgeId>
ThreeTensors build(const In* sources, const In* destinations, int64_t edges, int64_t nodes) {
  Buffer<int64_t> indptr;
  Buffer<Index> indices;
  Buffer<EdgeId> edge_ids;
  count_destinations(destinations, edges, nodes, indptr.reserve(nodes + 1));
  const bool sorted = scan_ascending(destinations, edges);
  EdgeId* const ids = sorted ? nullptr : edge_ids.reserve(edges);
  fill_csc(sources, destinations, edges, nodes, indptr.data(), indices.reserve(edges), ids);
  return {adopt(std::move(indptr), {nodes + 1}), adopt(std::move(indices), {edges}),
          adopt(std::move(edge_ids), {sorted ? 0 : edges})};
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

void collect(NodeSet& set, const std::vector<Tensor>& nodes, int64_t num_nodes) {
  set.begin(num_nodes);
  for (const Tensor& node : nodes) set.add(data<int64_t>(node), node.numel());
}

Tensor listed(NodeSet& set) {
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
  const int64_t count = values.numel();
  Buffer<double> sums;
  pyg_batchgnn::sum_lists(data<int64_t>(indptr), indptr.numel() - 1, data<double>(values),
                          sums.reserve(count + 1));
  return adopt(std::move(sums), {count});
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
    return 0;
  });
}

Tensor gather_rows(const Tensor& table, const Tensor& index, int64_t threads) {
  std::vector<int64_t> sizes(table.sizes().begin(), table.sizes().end());
  sizes[0] = index.numel();
  const int64_t bytes = index.numel() * bytes_of_row(table);
  Tensor out = adopt_block(allocate_block(static_cast<size_t>(std::max<int64_t>(1, bytes))), sizes,
                           table.scalar_type());
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
  const auto loan = node_sets().borrow();
  collect(*loan, nodes, num_nodes);
  return listed(*loan);
}

std::tuple<Tensor, std::vector<Tensor>> unique_nodes(const std::vector<Tensor>& nodes, int64_t num_nodes) {
  const auto loan = node_sets().borrow();
  NodeSet& set = *loan;
  collect(set, nodes, num_nodes);
  Tensor unique = listed(set);
  std::vector<Tensor> rows;
  rows.reserve(nodes.size());
  for (const Tensor& node : nodes) {
    Buffer<int64_t> row;
    set.rank(data<int64_t>(node), node.numel(), row.reserve(node.numel() + 1));
    rows.push_back(adopt(std::move(row), {node.numel()}));
  }
  return {std::move(unique), std::move(rows)};
}

int64_t count_unique_nodes(const std::vector<Tensor>& nodes, int64_t num_nodes) {
  const auto loan = node_sets().borrow();
  collect(*loan, nodes, num_nodes);
  return (*loan).size();
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
    OPERATOR(count_unique_nodes, "(Tensor[] nodes, int num_nodes) -> int"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
