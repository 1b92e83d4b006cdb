#include <string>

#include "bindings/operators.h"
#include "bindings/tensors.h"
#include "kernels/csc.h"
#include "kernels/nn/aggregate.h"

namespace pyg_batchgnn {
namespace {

MaxJob max_job(const Tensor& x, const Tensor& indptr, const Tensor& indices, const OptionalTensor& row,
               const OptionalTensor& decoding = std::nullopt) {
  return {data<int64_t>(indptr), integers(indices), indptr.numel() - 1, x.size(1),
          matrix(x, decoding),   integers(row)};
}

ScalarType scale_type(ScalarType dtype) {
  return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

enum class Reduction { kSum, kMean, kMax };

Reduction reduction_of(const std::string& name) {
  if (name == "sum") return Reduction::kSum;
  if (name == "mean") return Reduction::kMean;
  if (name == "max") return Reduction::kMax;
  throw std::invalid_argument("reduce must be one of sum, mean, max, got '" + name + "'");
}

}  // namespace

namespace operators {

Tensor aggregate(const Tensor& x, const OptionalTensor& decoding, const Tensor& indptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& edge_weight, const OptionalTensor& edge,
                 const OptionalTensor& source_scale, const OptionalTensor& target_scale,
                 const OptionalTensor& self_input, const OptionalTensor& self_scale,
                 std::vector<Tensor> /*by source, for the gradient*/, int64_t num_targets, std::string reduce,
                 ScalarType out_dtype, int64_t threads) {
  const Reduction reduction = reduction_of(reduce);
  Tensor out = new_tensor({num_targets, x.size(1)}, out_dtype);
  if (reduction == Reduction::kMax) {
    max_rows(max_job(x, indptr, indices, row, decoding), out.mutable_data_ptr(), element_of(out_dtype),
             threads);
    return out;
  }
  Aggregation job{.indptr = data<int64_t>(indptr),
                  .indices = integers(indices),
                  .targets = num_targets,
                  .columns = x.size(1),
                  .x = matrix(x, decoding),
                  .row = integers(row),
                  .edge = integers(edge),
                  .edge_weight = pointer(edge_weight),
                  .source_scale = pointer(source_scale),
                  .target_scale = pointer(target_scale),
                  .mean = reduction == Reduction::kMean,
                  .out = out.mutable_data_ptr(),
                  .out_element = element_of(out_dtype)};
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
  const EdgeDots job{.indptr = data<int64_t>(indptr),
                     .indices = integers(indices),
                     .targets = indptr.numel() - 1,
                     .columns = x.size(1),
                     .x = matrix(x, decoding),
                     .row = integers(row),
                     .grad = matrix(grad),
                     .source_scale = pointer(source_scale),
                     .target_scale = pointer(target_scale),
                     .mean = mean};
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
  share_among_maxima(max_job(x, indptr, indices, std::nullopt), matrix(out), matrix(grad),
                     share.mutable_data_ptr(), threads);
  Tensor result = new_tensor({x.size(0), x.size(1)}, x.scalar_type());
  gather_shares(max_job(out, source_ptr, targets, std::nullopt), matrix(x), matrix(share),
                result.mutable_data_ptr(), threads);
  return result;
}

ThreeTensors transpose(const Tensor& indptr, const Tensor& indices, int64_t num_targets, int64_t num_sources,
                       int64_t threads) {
  const int64_t edges = indices.numel();
  Buffer<int64_t> ptr;
  Buffer<int32_t> targets;
  const auto fill = [&](auto type) {
    Buffer<decltype(type)> edge;
    pyg_batchgnn::transpose(data<int64_t>(indptr), integers(indices), num_targets, num_sources,
                            ptr.reserve(num_sources + 1), targets.reserve(edges + 1), edge.reserve(edges + 1),
                            threads);
    return adopt(std::move(edge), {edges});
  };
  Tensor edge = fits_int32(edges) ? fill(int32_t{}) : fill(int64_t{});
  return {adopt(std::move(ptr), {num_sources + 1}), adopt(std::move(targets), {edges}), edge};
}

Tensor degree_scale(const Tensor& indptr, int64_t num_nodes, int64_t loops, bool root, ScalarType dtype) {
  Tensor scale = new_tensor({num_nodes}, dtype);
  const int64_t targets = indptr.numel() - 1;
  if (dtype == ScalarType::Double) {
    pyg_batchgnn::degree_scale(data<int64_t>(indptr), targets, num_nodes, loops, root,
                               mutable_data<double>(scale));
  } else {
    pyg_batchgnn::degree_scale(data<int64_t>(indptr), targets, num_nodes, loops, root,
                               mutable_data<float>(scale));
  }
  return scale;
}

int64_t count_self_loops(const Tensor& indptr, const Tensor& indices) {
  return count_loops(data<int64_t>(indptr), integers(indices), indptr.numel() - 1);
}

ThreeTensors drop_self_loops(const Tensor& indptr, const Tensor& indices) {
  const int64_t nodes = indptr.numel() - 1;
  const int64_t edges = indices.numel() - count_self_loops(indptr, indices);
  Buffer<int64_t> new_indptr, kept;
  Buffer<int32_t> new_indices;
  drop_loops(data<int64_t>(indptr), integers(indices), nodes, new_indptr.reserve(nodes + 1),
             new_indices.reserve(edges + 1), kept.reserve(edges + 1));
  return {adopt(std::move(new_indptr), {nodes + 1}), adopt(std::move(new_indices), {edges}),
          adopt(std::move(kept), {edges})};
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(aggregate,
             "(Tensor x, Tensor? decoding, Tensor indptr, Tensor indices, Tensor? row, Tensor? edge_weight, "
             "Tensor? edge, Tensor? source_scale, Tensor? target_scale, Tensor? self_input, Tensor? "
             "self_scale, Tensor[] "
             "by_source, int num_targets, str reduce, ScalarType out_dtype, int threads) -> Tensor"),
    OPERATOR(aggregate_weight_grads,
             "(Tensor grad, Tensor x, Tensor? decoding, Tensor indptr, Tensor indices, Tensor? row, Tensor? "
             "source_scale, Tensor? target_scale, bool mean, bool need_edge, int self_size, int threads) -> "
             "(Tensor edge, Tensor self)"),
    OPERATOR(aggregate_max_grads,
             "(Tensor grad, Tensor out, Tensor x, Tensor indptr, Tensor indices, Tensor source_ptr, Tensor "
             "targets, int threads) -> Tensor"),
    OPERATOR(transpose,
             "(Tensor indptr, Tensor indices, int num_targets, int num_sources, int threads) -> (Tensor ptr, "
             "Tensor targets, Tensor edge)"),
    OPERATOR(degree_scale,
             "(Tensor indptr, int num_nodes, int loops, bool root, ScalarType dtype) -> Tensor"),
    OPERATOR(count_self_loops, "(Tensor indptr, Tensor indices) -> int"),
    OPERATOR(drop_self_loops,
             "(Tensor indptr, Tensor indices) -> (Tensor indptr, Tensor indices, Tensor kept)"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
