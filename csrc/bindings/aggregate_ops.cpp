#include <string>

#include "bindings/operators.h"
#include "bindings/tensors.h"
#include "kernels/csc.h"
#include "kernels/nn/aggregate.h"

namespace pyg_batchgnn {
namespace {

InEdgeRows rows_of(const Tensor& x, const Tensor& indptr, const Tensor& indices,
                   const OptionalTensor& row = std::nullopt, const OptionalTensor& decoding = std::nullopt) {
  return {data<int64_t>(indptr), integers(indices), indptr.numel() - 1, x.size(1),
          matrix(x, decoding),   integers(row)};
}

ScalarType scale_type(ScalarType dtype) {
  return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

}  // namespace

namespace operators {

Tensor aggregate(const Tensor& x, const OptionalTensor& decoding, const Tensor& indptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& edge_weight, const OptionalTensor& edge,
                 const OptionalTensor& source_scale, const OptionalTensor& target_scale,
                 const OptionalTensor& self_input, const OptionalTensor& self_scale,
                 std::vector<Tensor> /*by source, for the gradient*/, int64_t num_targets, std::string reduce,
                 ScalarType out_dtype, int64_t threads) {
  Tensor out = new_tensor({num_targets, x.size(1)}, out_dtype);
  const InEdgeRows rows = rows_of(x, indptr, indices, row, decoding);
  if (reduce == "max") {
    max_rows(rows, out.mutable_data_ptr(), element_of(out_dtype), threads);
    return out;
  }
  if (reduce != "sum" && reduce != "mean") throw std::invalid_argument("reduce is '" + reduce + "'");
  Aggregation job{rows,
                  {pointer(source_scale), pointer(target_scale), reduce == "mean"},
                  out.mutable_data_ptr(),
                  element_of(out_dtype)};
  job.targets = num_targets;
  job.edge = integers(edge);
  job.edge_weight = pointer(edge_weight);
  if (self_input.has_value() || self_scale.has_value()) {
    job.self = matrix(self_input.has_value() ? *self_input : x);
    if (!self_input.has_value()) job.self_row = job.row;
    const int64_t held = job.self_row ? row->numel() : (self_input.has_value() ? *self_input : x).size(0);
    job.self_rows = std::min(held, num_targets);
    job.self_scale = pointer(self_scale);
    job.self_scale_each = self_scale.has_value() && self_scale->numel() != 1;
  }
  pyg_batchgnn::aggregate(job, threads);
  return out;
}

TwoTensors aggregate_weight_grads(const Tensor& grad, const Tensor& x, const OptionalTensor& decoding,
                                  const Tensor& indptr, const Tensor& indices, const OptionalTensor& row,
                                  const OptionalTensor& source_scale, const OptionalTensor& target_scale,
                                  bool mean, bool need_edge, int64_t self_size, int64_t threads) {
  const EdgeDots job{rows_of(x, indptr, indices, row, decoding),
                     {pointer(source_scale), pointer(target_scale), mean},
                     matrix(grad)};
  const ScalarType dtype = scale_type(grad.scalar_type());
  Tensor of_edges = new_tensor({need_edge ? indices.numel() : 0}, dtype);
  Tensor of_self = new_tensor({self_size}, dtype);
  if (need_edge) edge_dots(job, of_edges.mutable_data_ptr(), threads);
  if (self_size > 0) self_dots(job, self_size != 1, of_self.mutable_data_ptr(), threads);
  return {of_edges, of_self};
}

Tensor aggregate_max_grads(const Tensor& grad, const Tensor& out, const Tensor& x, const Tensor& indptr,
                           const Tensor& indices, const Tensor& source_ptr, const Tensor& targets,
                           int64_t threads) {
  Tensor share = new_tensor({out.size(0), out.size(1)}, scale_type(out.scalar_type()));
  share_among_maxima(rows_of(x, indptr, indices), matrix(out), matrix(grad), share.mutable_data_ptr(),
                     threads);
  Tensor result = new_tensor({x.size(0), x.size(1)}, x.scalar_type());
  gather_shares(rows_of(out, source_ptr, targets), matrix(x), matrix(share), result.mutable_data_ptr(),
                threads);
  return result;
}

ThreeTensors transpose(const Tensor& indptr, const Tensor& indices, int64_t num_targets, int64_t num_sources,
                       int64_t threads) {
  const int64_t edges = indices.numel();
  const Tensor ptr = new_array<int64_t>({num_sources + 1}), targets = new_array<int32_t>({edges});
  const Tensor edge = fits_int32(edges) ? new_array<int32_t>({edges}) : new_array<int64_t>({edges});
  with_integer(edge, [&](auto type) {
    pyg_batchgnn::transpose(data<int64_t>(indptr), integers(indices), num_targets, num_sources,
                            mutable_data<int64_t>(ptr), mutable_data<int32_t>(targets),
                            mutable_data<decltype(type)>(edge), threads);
  });
  return {ptr, targets, edge};
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(aggregate,
             "(Tensor x, Tensor? decoding, Tensor indptr, Tensor indices, Tensor? row, Tensor? edge_weight, "
             "Tensor? edge, Tensor? source_scale, Tensor? target_scale, Tensor? self_input, Tensor? "
             "self_scale, Tensor[] by_source, int num_targets, str reduce, ScalarType out_dtype, int "
             "threads) -> Tensor"),
    OPERATOR(aggregate_weight_grads,
             "(Tensor grad, Tensor x, Tensor? decoding, Tensor indptr, Tensor indices, Tensor? row, Tensor? "
             "source_scale, Tensor? target_scale, bool mean, bool need_edge, int self_size, int threads) -> "
             "(Tensor edge, Tensor self)"),
    OPERATOR(aggregate_max_grads,
             "(Tensor grad, Tensor out, Tensor x, Tensor indptr, Tensor indices, Tensor source_ptr, Tensor "
             "targets, int threads) -> Tensor"),
    OPERATOR(transpose,
             "(Tensor indptr, Tensor indices, int num_targets, int num_sources, int threads) -> (Tensor "
             "ptr, Tensor targets, Tensor edge)"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
