#include <algorithm>

#include "bindings/operators.h"
#include "kernels/nn/attention.h"

namespace pyg_batchgnn {
namespace {

AttentionEdges edges_of(const Tensor& indptr, const Tensor& indices, int64_t targets, int64_t loops) {
  return {data<int64_t>(indptr), integers(indices), targets, loops};
}

AttentionDropout dropout_of(double drop, int64_t key, const OptionalTensor& node) {
  return {drop, static_cast<uint64_t>(key), data_or_null<int64_t>(node)};
}

// The weights of sources are [heads, width], or [targets, heads, width].
AttentionInput input_of(const AttentionEdges& edges, const AttentionDropout& dropout, const Tensor& x,
                        const OptionalTensor& decoding, const OptionalTensor& row,
                        const Tensor& source_weight, const OptionalTensor& target_weight,
                        const OptionalTensor& edge_rows, const OptionalTensor& target_rows,
                        const OptionalTensor& edge_weight, bool by_head, int64_t scores, double slope) {
  const int64_t dims = source_weight.dim(), edge_columns = edge_rows ? edge_rows->size(1) : 0;
  AttentionInput input{edges,
                       {matrix(x, decoding), integers(row), 0, by_head, pointer(edge_rows), edge_columns},
                       dropout,
                       {source_weight.size(dims - 2), slope, source_weight.const_data_ptr(), dims == 3,
                        pointer(target_weight), static_cast<Scores>(scores), pointer(target_rows),
                        target_rows ? target_rows->stride(0) : 0, pointer(edge_weight)}};
  input.rows.columns = source_weight.size(dims - 1) - input.edge_columns();
  return input;
}

void* pointer_if(bool wanted, Tensor& tensor) { return wanted ? tensor.mutable_data_ptr() : nullptr; }

}  // namespace

namespace operators {

ThreeTensors attention(const Tensor& x, const OptionalTensor& decoding, const OptionalTensor& row,
                       const Tensor& indptr, const Tensor& indices, const Tensor& source_weight,
                       const OptionalTensor& target_weight, const OptionalTensor& target_logits,
                       const OptionalTensor& edge_logits, const OptionalTensor& edge_rows,
                       const OptionalTensor& target_rows, const OptionalTensor& edge_weight,
                       const OptionalTensor& node, const std::vector<Tensor>& /*by_source*/, bool by_head,
                       int64_t scores, int64_t num_targets, int64_t num_loops, double negative_slope,
                       double drop, int64_t key, ScalarType out_dtype, int64_t threads) {
  const AttentionInput input = input_of(
      edges_of(indptr, indices, num_targets, num_loops), dropout_of(drop, key, node), x, decoding, row,
      source_weight, target_weight, edge_rows, target_rows, edge_weight, by_head, scores, negative_slope);
  const int64_t heads = input.model.heads;
  const ScalarType wide = source_weight.scalar_type();
  Tensor out = new_tensor({num_targets, heads * input.width()}, out_dtype);
  const int64_t softened = input.has_softmax() ? heads : 0;
  Tensor coefficient = new_tensor({attention_slots(input.edges), softened}, wide);
  Tensor total = new_tensor({num_targets, softened}, wide);
  attention_forward(input, pointer(target_logits), pointer(edge_logits),
                    {out.mutable_data_ptr(), element_of(out_dtype), coefficient.mutable_data_ptr(),
                     total.mutable_data_ptr()},
                    threads);
  return {out, coefficient, total};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> attention_grads(
    const Tensor& grad, const OptionalTensor& grad_coefficient, const OptionalTensor& grad_total,
    const Tensor& coefficient, const Tensor& x, const OptionalTensor& decoding, const OptionalTensor& row,
    const Tensor& indptr, const Tensor& indices, const Tensor& source_weight,
    const OptionalTensor& target_weight, const OptionalTensor& edge_rows, const OptionalTensor& target_rows,
    const OptionalTensor& edge_weight, const OptionalTensor& node, const std::vector<Tensor>& by_source,
    bool by_head, int64_t scores, int64_t num_targets, int64_t num_loops, double negative_slope, double drop,
    int64_t key, bool need_edge_logits, bool need_edge_rows, int64_t threads) {
  const AttentionInput input = input_of(
      edges_of(indptr, indices, num_targets, num_loops), dropout_of(drop, key, node), x, decoding, row,
      source_weight, target_weight, edge_rows, target_rows, edge_weight, by_head, scores, negative_slope);
  const int64_t heads = input.model.heads, slots = attention_slots(input.edges);
  const ScalarType wide = source_weight.scalar_type();
  const bool need_x = !by_source.empty();
  AttentionTranspose transpose{};
  if (need_x) {
    const Tensor &ptr = by_source[0], &targets = by_source[1], &edge = by_source[2];
    transpose = {data<int64_t>(ptr), integers(targets), integers(edge), ptr.numel() - 1};
  }
  const bool softened = input.has_softmax();
  Tensor source_grad = softened ? new_tensor_like(source_weight) : new_tensor({0}, wide);
  Tensor target_grad = new_tensor({heads, input.rows.columns}, wide);
  Tensor target_logits = new_tensor({softened ? num_targets : 0, heads}, wide);
  Tensor edge_logits = new_tensor({need_edge_logits ? slots : 0, heads}, wide);
  Tensor edge_grad = new_tensor({need_edge_rows ? slots : 0, input.rows.edge_columns}, wide);
  Tensor target_rows_grad = new_tensor({target_rows ? num_targets : 0, x.size(1)}, wide);
  Tensor weight_grad = new_tensor({edge_weight ? edge_weight->size(0) : 0, x.size(1)}, wide);
  Tensor x_grad = new_tensor({need_x ? transpose.sources : 0, x.size(1)}, x.scalar_type());
  attention_backward(
      input,
      {grad.const_data_ptr(), element_of(grad.scalar_type()), coefficient.const_data_ptr(),
       pointer(grad_coefficient), pointer(grad_total)},
      transpose,
      {source_grad.mutable_data_ptr(), target_grad.mutable_data_ptr(), target_logits.mutable_data_ptr(),
       pointer_if(need_edge_logits, edge_logits), pointer_if(need_edge_rows, edge_grad),
       pointer_if(need_x, x_grad), pointer_if(target_rows.has_value(), target_rows_grad),
       pointer_if(edge_weight.has_value(), weight_grad)},
      threads);
  return {source_grad, target_grad,      target_logits, edge_logits,
          edge_grad,   target_rows_grad, weight_grad,   x_grad};
}

Tensor attention_keep(const Tensor& indptr, const OptionalTensor& node, int64_t num_targets,
                      int64_t num_loops, int64_t heads, double drop, int64_t key) {
  const AttentionEdges edges{data<int64_t>(indptr), Integers{}, num_targets, num_loops};
  Tensor keep = new_array<uint8_t>({attention_slots(edges), heads});
  pyg_batchgnn::attention_keep(edges, dropout_of(drop, key, node), heads, mutable_data<uint8_t>(keep));
  return keep;
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(
        attention,
        "(Tensor x, Tensor? decoding, Tensor? row, Tensor indptr, Tensor indices, Tensor "
        "source_weight, Tensor? target_weight, Tensor? target_logits, Tensor? edge_logits, Tensor? "
        "edge_rows, Tensor? target_rows, Tensor? edge_weight, Tensor? node, Tensor[] by_source, bool "
        "by_head, int scores, int num_targets, int num_loops, float negative_slope, float drop, int key, "
        "ScalarType out_dtype, int threads) -> (Tensor out, Tensor coefficient, Tensor total)"),
    OPERATOR(
        attention_grads,
        "(Tensor grad, Tensor? grad_coefficient, Tensor? grad_total, Tensor coefficient, Tensor x, "
        "Tensor? decoding, Tensor? row, Tensor indptr, Tensor indices, Tensor source_weight, Tensor? "
        "target_weight, Tensor? edge_rows, Tensor? target_rows, Tensor? edge_weight, Tensor? node, Tensor[] "
        "by_source, bool by_head, int scores, int num_targets, int num_loops, float negative_slope, "
        "float drop, int key, bool need_edge_logits, bool need_edge_rows, int threads) -> (Tensor "
        "source_weight, Tensor target_weight, Tensor target_logits, Tensor edge_logits, Tensor "
        "edge_rows, Tensor target_rows, Tensor edge_weight, Tensor x)"),
    OPERATOR(attention_keep,
             "(Tensor indptr, Tensor? node, int num_targets, int num_loops, int heads, float drop, int key) "
             "-> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
