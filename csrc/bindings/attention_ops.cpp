#include <algorithm>

#include "bindings/operators.h"
#include "bindings/tensors.h"
#include "kernels/nn/attention.h"

namespace pyg_batchgnn {
namespace {

AttentionRows rows_of(const Tensor& x, const OptionalTensor& row) {
  return {matrix(x), integers(row), x.size(1)};
}

AttentionEdges edges_of(const Tensor& indptr, const Tensor& indices, int64_t targets, int64_t loops) {
  return {data<int64_t>(indptr), integers(indices), targets, loops};
}

}  // namespace

namespace operators {

TwoTensors attention(const Tensor& x, const OptionalTensor& row, const Tensor& indptr, const Tensor& indices,
                     const Tensor& source_weight, const OptionalTensor& target_weight,
                     const OptionalTensor& target_logits, const OptionalTensor& edge_logits,
                     const OptionalTensor& node, const std::vector<Tensor>& /*by_source*/,
                     int64_t num_targets, int64_t num_loops, double negative_slope, double drop, int64_t key,
                     ScalarType out_dtype, int64_t threads) {
  const int64_t heads = source_weight.size(0), columns = x.size(1);
  const AttentionInput input{edges_of(indptr, indices, num_targets, num_loops),
                             rows_of(x, row),
                             {drop, static_cast<uint64_t>(key), data_or_null<int64_t>(node)},
                             {heads, negative_slope, source_weight.const_data_ptr(), pointer(target_weight)}};
  Tensor out = new_tensor({num_targets, heads * columns}, out_dtype);
  Tensor coefficient = new_tensor({attention_slots(input.edges), heads}, source_weight.scalar_type());
  attention_forward(input, pointer(target_logits), pointer(edge_logits),
                    {out.mutable_data_ptr(), element_of(out_dtype), coefficient.mutable_data_ptr()}, threads);
  return {out, coefficient};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> attention_grads(
    const Tensor& grad, const OptionalTensor& grad_coefficient, const Tensor& coefficient, const Tensor& x,
    const OptionalTensor& row, const Tensor& indptr, const Tensor& indices, const Tensor& source_weight,
    const OptionalTensor& target_weight, const OptionalTensor& node, const std::vector<Tensor>& by_source,
    int64_t num_targets, int64_t num_loops, double negative_slope, double drop, int64_t key,
    bool need_edge_logits, int64_t threads) {
  const int64_t heads = source_weight.size(0), columns = x.size(1);
  const ScalarType wide = source_weight.scalar_type();
  const AttentionInput input{edges_of(indptr, indices, num_targets, num_loops),
                             rows_of(x, row),
                             {drop, static_cast<uint64_t>(key), data_or_null<int64_t>(node)},
                             {heads, negative_slope, source_weight.const_data_ptr(), pointer(target_weight)}};
  const bool need_x = !by_source.empty();
  AttentionTranspose transpose{};
  if (need_x) {
    const Tensor &ptr = by_source[0], &targets = by_source[1], &edge = by_source[2];
    transpose = {data<int64_t>(ptr), integers(targets), integers(edge), ptr.numel() - 1};
  }
  const int64_t slots = need_edge_logits ? attention_slots(input.edges) : 0;
  Tensor source_grad = new_tensor({heads, columns}, wide);
  Tensor target_grad = new_tensor({heads, columns}, wide);
  Tensor target_logits = new_tensor({num_targets, heads}, wide);
  Tensor edge_logits = new_tensor({slots, heads}, wide);
  Tensor x_grad = new_tensor({need_x ? transpose.sources : 0, columns}, x.scalar_type());
  attention_backward(
      input,
      {grad.const_data_ptr(), element_of(grad.scalar_type()), coefficient.const_data_ptr(),
       pointer(grad_coefficient)},
      transpose,
      {source_grad.mutable_data_ptr(), target_grad.mutable_data_ptr(), target_logits.mutable_data_ptr(),
       need_edge_logits ? edge_logits.mutable_data_ptr() : nullptr,
       need_x ? x_grad.mutable_data_ptr() : nullptr},
      threads);
  return {source_grad, target_grad, target_logits, edge_logits, x_grad};
}

Tensor attention_keep(const Tensor& indptr, const OptionalTensor& node, int64_t num_targets,
                      int64_t num_loops, int64_t heads, double drop, int64_t key) {
  const AttentionEdges edges{data<int64_t>(indptr), Integers{}, num_targets, num_loops};
  Buffer<uint8_t> keep;
  const int64_t slots = attention_slots(edges);
  pyg_batchgnn::attention_keep(edges, {drop, static_cast<uint64_t>(key), data_or_null<int64_t>(node)}, heads,
                               keep.reserve(slots * heads));
  return adopt(std::move(keep), {slots, heads});
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(attention,
             "(Tensor x, Tensor? row, Tensor indptr, Tensor indices, Tensor source_weight, Tensor? "
             "target_weight, Tensor? target_logits, Tensor? edge_logits, Tensor? node, Tensor[] by_source, "
             "int num_targets, int num_loops, float negative_slope, float drop, int key, ScalarType "
             "out_dtype, int threads) -> (Tensor out, Tensor coefficient)"),
    OPERATOR(attention_grads,
             "(Tensor grad, Tensor? grad_coefficient, Tensor coefficient, Tensor x, Tensor? row, Tensor "
             "indptr, Tensor indices, Tensor source_weight, Tensor? target_weight, Tensor? node, Tensor[] "
             "by_source, int num_targets, int num_loops, float negative_slope, float drop, int key, bool "
             "need_edge_logits, int threads) -> (Tensor source_weight, Tensor target_weight, Tensor "
             "target_logits, Tensor edge_logits, Tensor x)"),
    OPERATOR(attention_keep,
             "(Tensor indptr, Tensor? node, int num_targets, int num_loops, int heads, float drop, int key) "
             "-> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
